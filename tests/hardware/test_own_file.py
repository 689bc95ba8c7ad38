"""Hardware of the user's own: additions and overrides without code, and every way such a file can be wrong."""

from __future__ import annotations

import pytest

from linkscale.base.errors import InputError
from linkscale.hardware.catalogue import load_catalogue
from linkscale.hardware.facts import facts_of
from linkscale.topology import parse_cluster

WHOLE = """\
gpus:
  Toy:
    title: A toy
    arch: hopper
    peak_dense_per_gpu: {bf16: 100 TFLOP/s, source: bench}
    memory_per_gpu: {label: 10 GB, reading: GB, usable: 10 GB, usable_source: bench, bandwidth: 1 TB/s, type: HBM,
                     source: bench}
    power_per_gpu: {value: 100 W, source: bench}
    sms_per_gpu: {value: 10, source: bench}
systems:
  Toy-Box:
    title: A box of toys
    gpu: toy
    gpus_per_node: 2
    scaleup: {kind: none, domain_gpus: 1, source: bench}
    scaleout: {kind: ethernet, ports_per_node: 1, bandwidth_per_port_per_direction: 10 Gb/s, source: bench}
    host: {vendor: amd, source: bench}
"""


@pytest.fixture
def mine(tmp_path):
    def write(text: str):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return path

    return write


def test_a_part_that_is_like_another_states_what_differs(mine):
    catalogue = load_catalogue(mine("gpus: {Quiet: {like: H100, power_per_gpu: {value: 500 W}}}"))
    quiet, base = catalogue.gpu("quiet"), catalogue.gpu("h100-sxm5")
    assert (quiet.name, quiet.power_w, base.power_w) == ("Quiet", 500.0, 700.0)
    assert quiet.peak_flops_per_s == base.peak_flops_per_s


def test_an_entry_with_the_name_of_a_packaged_one_replaces_what_it_states(mine):
    path = mine("gpus: {H100-SXM5: {memory_per_gpu: {bandwidth: 3 TB/s, source: our own measurement}}}")
    assert load_catalogue(path).gpu("h100").memory_bandwidth_bytes_per_s == 3e12
    assert parse_cluster("dgx-h100:8", catalog=path).gpu.memory_bandwidth_bytes_per_s == 3e12
    assert load_catalogue().gpu("h100").memory_bandwidth_bytes_per_s == 3.35e12


def test_a_block_without_a_source_names_the_file_and_drops_the_old_words(mine):
    catalogue = load_catalogue(mine("gpus: {fast: {like: b300-sxm, power_per_gpu: {value: 900 W}}}"))
    power = next(fact for fact in facts_of(catalogue.gpu_entry("fast")) if fact.name == "power_per_gpu.value")
    assert "mine.yaml" in power.source
    assert not power.disagreement


def test_whole_entries_of_ones_own(mine):
    path = mine(WHOLE)
    cluster = parse_cluster("toy-box:6", catalog=path)
    assert (cluster.name, cluster.gpu.name, cluster.nodes) == ("Toy-Box", "Toy", 3)
    assert cluster.scaleout.bandwidth_bytes_per_s * 8 == 5e9
    assert "toy" in load_catalogue(path).names("gpus")


def test_a_gpu_that_is_like_another_comes_in_its_system(mine):
    cluster = parse_cluster("quiet:16", catalog=mine("gpus: {quiet: {like: h100-sxm5}}"))
    assert (cluster.gpu.name, cluster.gpus_per_node, cluster.host_cpu) == ("quiet", 8, "intel")


def test_likes_may_be_chained_and_an_empty_file_adds_nothing(mine):
    text = "gpus: {a: {like: b, title: A}, b: {like: h100, power_per_gpu: {value: 1 kW}}}"
    assert load_catalogue(mine(text)).gpu("a").power_w == 1000.0
    assert load_catalogue(mine("")).gpu("h100").power_w == 700.0


def use(path) -> None:
    catalogue = load_catalogue(path)
    if catalogue.key("gpus", "x"):
        catalogue.gpu("x")
    parse_cluster("x:8", catalog=catalogue)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpus: {x: {like: h10}}", "did you mean"),
        ("gpus: {x: {like: y}, y: {like: x}}", "leads back"),
        ("gpus: {x: {like: x}}", "missing required field"),
        ("gpu: {x: {}}", "did you mean 'gpus'"),
        ("gpus: [1, 2]", "entries by name"),
        ("gpus: {x: 3}", "keys and values"),
        ("- 1", "expected `gpus:`"),
        ("gpus: {h100: {}, H100: {}}", "stands twice"),
        ("gpus: {x: {like: h100, power: {value: 1 W}}}", "did you mean"),
        ("gpus: {x: {like: h100, power_per_gpu: {value: 1 parsec}}}", "no quantity in W"),
        ("gpus: {x: {like: h100, power_per_gpu: {value: -1 W}}}", "negative"),
        ("gpus: {x: {like: h100, power_per_gpu: {value: 1e99 W}}}", "out of range"),
        ("gpus: {x: {like: h100, power_per_gpu: {value: 1 W, source: ''}}}", "source is empty"),
        ("gpus: {x: {like: h100, power_per_gpu: 700 W}}", "mine.yaml:1"),
        ("gpus: {x: {like: h100, arch: pascal}}", "arch"),
        ("gpus: {x: {like: h100, power_per_gpu: !!python/object/apply:os.system [true]}}", "mine.yaml"),
        ("a: &a [1]\ngpus: *a", "alias"),
        ("gpus: {x: {like: h100, sms_per_gpu: {value: 0}}}", "at least 1"),
        ("gpus: {x: {like: h100, memory_per_gpu: {usable: 0 GB}}}", "more than 0"),
        ("gpus: {x: [", "mine.yaml:"),
        ("gpus: {1: {like: h100}}\nsystems: {x: {like: dgx-h100, gpus_per_node: 0}}", "at least 1"),
        ("systems: {x: {like: dgx-h100, scaleup: {domain_gpus: 0}}}", "at least 1"),
        ("systems: {x: {like: dgx-h100, scaleout: {ports_per_node: -8}}}", "ports_per_node"),
        ("systems: {x: {like: dgx-h100, gpu: nothing-like-it}}", "unknown GPU"),
        ("systems: {x: {like: [1]}}", "like"),
        ("\x00", "mine.yaml"),
    ],
)
def test_a_wrong_file_gets_one_line(mine, text, said):
    path = mine(text)
    with pytest.raises(InputError) as raised:
        use(path)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_catalogue(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="directory"):
        load_catalogue(tmp_path)


def test_nics_and_switches_of_ones_own(mine):
    text = "nics: {nic-x: {bandwidth_per_card_per_direction: 3.2 Tb/s}, nic-y: {like: connectx-7, power: 30 W}}"
    catalogue = load_catalogue(mine(text))
    facts = {fact.name: fact for fact in facts_of(catalogue.entry("nics", "NIC-Y"))}
    assert facts["power"].value == 30.0
    assert facts["bandwidth_per_card_per_direction"].value == 50e9
    assert "mine.yaml" in facts_of(catalogue.entry("nics", "nic-x"))[0].source

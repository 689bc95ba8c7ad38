"""The packaged catalogue: every entry is read, has sources, and its figures agree with one another."""

from __future__ import annotations

import time

import pytest

from linkscale.base.errors import InputError
from linkscale.base.units import parse_quantity
from linkscale.hardware.catalogue import Catalogue, load_catalogue
from linkscale.hardware.parts import domain_bandwidth_bytes_per_s
from linkscale.topology.clusters import find_system

CATALOGUE = load_catalogue()
GPUS = CATALOGUE.names("gpus")
SYSTEMS = CATALOGUE.names("systems")

NVIDIA_DENSE_BF16 = {
    "v100-sxm2-32gb": None, "a100-sxm4-80gb": 312e12, "h100-sxm5": 989.4e12, "h200-sxm": 989.4e12, "l40s": 362e12,
    "b200-sxm": 2250e12, "gb200": 2500e12, "gb300": 2500e12,
}  # fmt: skip
"""Dense rates: web tables often print twice as much."""

NVLINK_PER_DIRECTION = {"v100-sxm2-32gb": 150e9, "a100-sxm4-80gb": 300e9, "h100-sxm5": 450e9, "b200-sxm": 900e9}
"""Half of the labels 300, 600, 900 GB/s and 1.8 TB/s, which count both directions."""

# Values of the column `gpu` in the table of published runs, and what they are.
RUN_GPUS = {
    "A100": "A100-SXM4-80GB", "H100-80GB-SXM": "H100-SXM5", "A100-80GB-SXM": "A100-SXM4-80GB", "GB200-NVL72": "GB200",
    "GB300-NVL72": "GB300", "H100-80GB": "H100-SXM5", "A100-80GB": "A100-SXM4-80GB", "A100-40GB": "A100-SXM4-40GB",
    "V100-32GB-SXM2": "V100-SXM2-32GB", "B200": "B200-SXM", "H100-96GB-HBM2e": "H100-SXM-96GB-HBM2e",
    "B300": "B300-SXM", "V100-16GB-SXM2": "V100-SXM2-16GB", "A100-SXM": "A100-SXM4-80GB",
    "B200 (power limited)": "B200-SXM", "V100-32GB-SXM3": "V100-SXM3-32GB", "H200": "H200-SXM",
    "A100-80GB-SXM (Azure NDm A100 v4)": "A100-SXM4-80GB", "H100-94GB-HBM2e": "H100-SXM-96GB-HBM2e",
    "H200-141GB (A3 Ultra)": "H200-SXM", "H100": "H100-SXM5", "H100-80GB-SXM (p5.48xlarge)": "H100-SXM5",
    "B200-180GB (A4)": "B200-SXM", "B200 (row printed as H200)": "B200-SXM", "H100-80GB-SXM (A3 Mega)": "H100-SXM5",
}  # fmt: skip


@pytest.mark.parametrize("name", GPUS)
def test_a_file_bears_the_name_of_its_entry(name):
    assert CATALOGUE.gpu_entry(name).name.lower() == name


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_bears_its_name_and_holds_a_known_gpu(name):
    system = CATALOGUE.system(name)
    assert system.name.lower() == name
    assert CATALOGUE.gpu(system.gpu).memory_bytes > 8e9


@pytest.mark.parametrize("name", GPUS)
def test_figures_of_a_gpu_are_of_the_right_size(name):
    gpu = CATALOGUE.gpu(name)
    label = parse_quantity(CATALOGUE.gpu_entry(name).memory_per_gpu.label, "bytes")
    assert 0.95 * label < gpu.memory_bytes < 1.075 * label, "usable memory against the label, read as GB or GiB"
    assert 0.5e12 < gpu.memory_bandwidth_bytes_per_s < 30e12
    half = gpu.peak_flops_per_s["fp16"]
    assert gpu.peak_flops_per_s.get("bf16", half) == half, "the two 16-bit types run at one rate on all of them"
    if gpu.arch != "rubin":  # announced with more than twice the rate in fp8
        assert gpu.peak_flops_per_s.get("fp8", 2 * half) <= 2.05 * half, "a sparse figure would be four times as much"
    assert gpu.sm_count >= 1


@pytest.mark.parametrize(("name", "flops"), NVIDIA_DENSE_BF16.items())
def test_peaks_are_dense(name, flops):
    assert CATALOGUE.gpu(name).peak_flops_per_s.get("bf16") == flops


@pytest.mark.parametrize(("name", "bandwidth"), NVLINK_PER_DIRECTION.items())
def test_nvlink_counts_one_direction(name, bandwidth):
    assert CATALOGUE.gpu(name).nvlink_bandwidth_bytes_per_s == bandwidth


@pytest.mark.parametrize("name", SYSTEMS)
def test_links_of_a_system_are_those_of_its_gpu(name):
    system = CATALOGUE.system(name)
    bandwidth = domain_bandwidth_bytes_per_s(system, CATALOGUE.gpu_entry(system.gpu))
    assert bandwidth > 0 or system.scaleup.kind == "none"
    hopper_or_later = CATALOGUE.gpu(system.gpu).nvlink_generation >= 4
    assert system.scaleup.in_switch_reduction == (system.scaleup.kind == "nvswitch" and hopper_or_later)


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_comes_in_a_system_that_holds_it(name):
    assert find_system(name, CATALOGUE).gpu.lower() == name


@pytest.mark.parametrize(("printed", "name"), RUN_GPUS.items())
def test_gpus_of_published_runs_are_known(printed, name):
    assert CATALOGUE.gpu(printed).name == name


@pytest.mark.parametrize(
    ("name", "hint"), [("h10", "h100"), ("B200-SMX", "b200-sxm"), ("unknown (not in the log)", "known:")]
)
def test_an_unknown_name_is_told_with_the_nearest(name, hint):
    with pytest.raises(InputError, match="unknown GPU") as raised:
        CATALOGUE.gpu(name)
    assert hint in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["../nccl", "gpus/../nccl", "h100-sxm5.yaml", "", "/etc/passwd", "a" * 10_000])
def test_a_name_is_no_path(name):
    with pytest.raises(InputError):
        CATALOGUE.gpu_entry(name)


def test_one_gpu_and_one_system_are_read_quickly():
    from linkscale.hardware import catalogue as module

    best = 1.0
    for _ in range(3):
        for cached in (module._packaged, module._packaged_names, module._alias_tables):
            cached.cache_clear()
        started = time.perf_counter()
        fresh = Catalogue()
        fresh.gpu(fresh.system("dgx-h100").gpu)
        best = min(best, time.perf_counter() - started)
    assert best < 0.06

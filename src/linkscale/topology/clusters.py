"""Clusters from text: ``dgx-h100:16384`` with ``--scaleup`` and ``--scaleout`` → Cluster.

``ib-400`` is one 400 Gb/s port per GPU and direction; ``ib-400x1/node`` one port per node.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from linkscale.base.errors import InputError, nearest
from linkscale.hardware.catalogue import Catalogue, aliases, load_catalogue
from linkscale.hardware.entries import GpuEntry, ScaleOutFacts, SystemEntry, positive
from linkscale.hardware.parts import domain_bandwidth_bytes_per_s
from linkscale.hardware.types import Gpu
from linkscale.topology.cluster import Cluster, FabricKind, ScaleOut, ScaleUp

FABRICS: dict[str, FabricKind] = {
    "ib": "infiniband", "infiniband": "infiniband", "roce": "roce", "eth": "ethernet", "ethernet": "ethernet",
    "efa": "efa", "opa": "omni-path", "omni-path": "omni-path",
}  # fmt: skip
LARGEST_CLUSTER = 10_000_000
FASTEST_PORT_GBPS = 100_000.0
LARGEST_DOMAIN = 100_000
LONGEST_SHOWN = 60
FIRST_NVLS = 4
"""NVLink generation whose switches reduce (NVSwitch 3, Hopper); A100 systems have none."""

_FABRIC = re.compile(r"([a-z]+(?:-[a-z]+)*)-?(\d+(?:\.\d+)?)(?:x(\d+)/node)?")
_FABRIC_EXAMPLES = "ib-400 (one 400 Gb/s port per GPU), roce-200, eth-100x1/node (one port per node), or none"


def parse_cluster(
    text: str, *, scaleup: str | None = None, scaleout: str | None = None,
    catalog: str | Path | Catalogue | None = None,
) -> Cluster:  # fmt: skip
    """Return the cluster that ``SYSTEM:GPUS`` names.

    ``SYSTEM`` is a system of the catalogue or a GPU, which stands for the system it usually comes in. ``scaleup``
    (``nvl8``, ``pcie``, ``none``) and ``scaleout`` (``ib-400``, ``eth-100x1/node``, ``none``) replace what it has.

    >>> parse_cluster("dgx-h100:64").scaleout.bandwidth_bytes_per_s
    50000000000.0
    """
    catalogue = catalog if isinstance(catalog, Catalogue) else load_catalogue(catalog)
    name, gpus = _split(text)
    system = find_system(name, catalogue)
    entry, gpu = catalogue.gpu_entry(system.gpu), catalogue.gpu(system.gpu)
    up = _scaleup(scaleup, system, entry, gpu)
    out = _scaleout(scaleout, system)
    assumptions = [f"{system.title}: {system.status}"] if system.status else []
    cluster = Cluster(
        name=system.name, gpu=gpu, gpus=gpus, gpus_per_node=system.gpus_per_node, scaleup=up, scaleout=out,
        host_cpu=system.host.vendor, host_memory_bytes_per_s=_host_memory_bytes_per_s(system),
        assumptions=(*assumptions, *_assumed(system, scaleup, scaleout, gpus, up)),
    )  # fmt: skip
    _linked(cluster, text)
    return cluster


def _host_memory_bytes_per_s(system: SystemEntry) -> float:
    memory = system.host_memory_per_node
    return 0.0 if memory is None else positive(memory.bandwidth, "bytes/s", "host_memory_per_node")


def find_system(name: str, catalogue: Catalogue) -> SystemEntry:
    """Return the system of a name; a GPU's name means the system it usually comes in."""
    if catalogue.key("systems", name) is None and catalogue.key("gpus", name) is not None:
        gpu = catalogue.gpu_entry(name)
        if not gpu.default_system:
            raise InputError(f"GPU {gpu.name} names no default_system; add one to its entry, or name a system")
        return _holding(catalogue.system(gpu.default_system), gpu)
    if catalogue.key("systems", name) is None:
        raise _unknown(name, catalogue)
    return catalogue.system(name)


def _holding(system: SystemEntry, gpu: GpuEntry) -> SystemEntry:
    """Return a system with another GPU in it: what a user's part that is like a packaged one comes in."""
    same = system.gpu.lower() == gpu.name.lower()
    return system if same else msgspec.structs.replace(system, name=f"{system.name} with {gpu.name}", gpu=gpu.name)


def scaleout_text(cluster: Cluster) -> str:
    """Say the network's rate per GPU and per node, per direction.

    >>> scaleout_text(parse_cluster("dgx-h100:64"))
    '400 Gb/s per GPU, 3,200 Gb/s per node'
    """
    out = cluster.scaleout
    if out.kind == "none":
        return "none"
    per_node = out.bandwidth_bytes_per_s * cluster.gpus_per_node
    return f"{_gbps(out.bandwidth_bytes_per_s)} per GPU, {_gbps(per_node)} per node"


def shown(text: str) -> str:
    """Quote what a person typed, the beginning of it where it is long."""
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def _gbps(bytes_per_s: float) -> str:
    gbps = bytes_per_s * 8 / 1e9
    return f"{gbps:,.0f} Gb/s" if gbps >= 1000 else f"{gbps:.4g} Gb/s"


def _split(text: str) -> tuple[str, int]:
    name, colon, count = text.strip().rpartition(":")
    if not colon or not name.strip():
        example = text.strip() if text.strip() and not colon else "dgx-h100"
        raise InputError(f"cluster {shown(text)} is not SYSTEM:GPUS; write, for example, {example}:64")
    digits = count.strip().replace(",", "").replace("_", "")
    if not re.fullmatch(r"[0-9]{1,12}", digits) or not 1 <= int(digits) <= LARGEST_CLUSTER:
        raise InputError(
            f"cluster {shown(text)}: {shown(count.strip())} is no number of GPUs; write a whole number "
            f"from 1 to {LARGEST_CLUSTER:,}, for example {name.strip()}:64"
        )
    return name.strip(), int(digits)


def _unknown(name: str, catalogue: Catalogue) -> InputError:
    systems = catalogue.names("systems")
    hint = nearest(name[:LONGEST_SHOWN], [*systems, *aliases("systems"), *catalogue.names("gpus"), *aliases("gpus")])
    tail = f"did you mean {hint!r}?" if hint else "for example dgx-h100;"
    return InputError(f"unknown system {shown(name)}; {tail} `linkscale catalog systems` lists all")


def _scaleup(text: str | None, system: SystemEntry, entry: GpuEntry, gpu: Gpu) -> ScaleUp:
    if text is None:
        facts = system.scaleup
        return ScaleUp(
            kind=facts.kind, domain_gpus=1 if facts.kind == "none" else facts.domain_gpus,
            bandwidth_bytes_per_s=domain_bandwidth_bytes_per_s(system, entry),
            nvls=facts.in_switch_reduction, peer_to_peer=gpu.peer_to_peer or facts.kind != "pcie", source=facts.source,
        )  # fmt: skip
    asked = text.strip().lower()
    if asked == "none":
        return ScaleUp(kind="none", domain_gpus=1, bandwidth_bytes_per_s=0.0, source="as asked")
    if asked == "pcie":
        return _pcie(system, gpu)
    match = re.fullmatch(r"nvl(\d{1,6})", asked)
    if not match or not 1 <= int(match[1]) <= LARGEST_DOMAIN:
        raise InputError(
            f"scale-up {shown(text)} is unknown; write nvl8, nvl72 (GPUs of an NVLink domain), pcie or none"
        )
    return _nvlink(int(match[1]), system, gpu)


def _pcie(system: SystemEntry, gpu: Gpu) -> ScaleUp:
    if not gpu.pcie_bandwidth_bytes_per_s:
        raise InputError(f"scale-up 'pcie': the catalogue gives {gpu.name} no PCIe link")
    return ScaleUp(
        kind="pcie", domain_gpus=system.gpus_per_node, bandwidth_bytes_per_s=gpu.pcie_bandwidth_bytes_per_s,
        peer_to_peer=gpu.peer_to_peer, source=f"as asked; PCIe x16 of {gpu.name}",
    )  # fmt: skip


def _nvlink(domain: int, system: SystemEntry, gpu: Gpu) -> ScaleUp:
    """Return an NVLink domain of so many GPUs: the system's kind, a bridge in PCIe boxes, else switches."""
    if not gpu.nvlink_bandwidth_bytes_per_s:
        raise InputError(f"scale-up 'nvl{domain}': {gpu.name} has no NVLink; use pcie or none")
    bridged = system.scaleup.kind == "pcie"
    if bridged and domain > 2:
        raise InputError(f"scale-up 'nvl{domain}': NVLink bridges join 2 {gpu.name} cards; use nvl2, pcie or none")
    meshed = system.scaleup.kind == "nvlink-mesh" and domain <= system.scaleup.domain_gpus
    return ScaleUp(
        kind="bridge" if bridged else "nvlink-mesh" if meshed else "nvswitch", domain_gpus=domain,
        bandwidth_bytes_per_s=gpu.nvlink_bandwidth_bytes_per_s,
        nvls=gpu.nvlink_generation >= FIRST_NVLS and not bridged, peer_to_peer=True,
        source=f"as asked; NVLink of {gpu.name}",
    )  # fmt: skip


def _scaleout(text: str | None, system: SystemEntry) -> ScaleOut:
    if text is None:
        return _from_facts(system.scaleout, system.gpus_per_node)
    asked = text.strip().lower()
    if asked == "none":
        return ScaleOut(kind="none", bandwidth_bytes_per_s=0.0, ports_per_node=0, port_bandwidth_bytes_per_s=0.0)
    match = _FABRIC.fullmatch(asked)
    if not match:
        raise InputError(f"scale-out {shown(text)} is unknown; write {_FABRIC_EXAMPLES}")
    if match[1] not in FABRICS:
        hint = nearest(match[1][:LONGEST_SHOWN], FABRICS)
        tail = f"did you mean {hint!r}?" if hint else "known: ib, roce, eth, efa, opa"
        raise InputError(f"scale-out {shown(text)}: unknown network {shown(match[1])}; {tail}")
    gbps, ports = float(match[2]), int(match[3] or system.gpus_per_node)
    if not 0.0 < gbps <= FASTEST_PORT_GBPS or not 1 <= ports <= LARGEST_DOMAIN:
        raise InputError(f"scale-out {shown(text)} is out of range; write {_FABRIC_EXAMPLES}")
    return _ports(FABRICS[match[1]], ports, gbps * 1e9 / 8, system.gpus_per_node, "as asked")


def _from_facts(facts: ScaleOutFacts, gpus_per_node: int) -> ScaleOut:
    rate = positive(facts.bandwidth_per_port_per_direction, "bytes/s", "bandwidth_per_port_per_direction")
    return _ports(facts.kind, facts.ports_per_node, rate, gpus_per_node, facts.source)


def _ports(kind: FabricKind, ports: int, rate_bytes_per_s: float, gpus_per_node: int, source: str) -> ScaleOut:
    return ScaleOut(
        kind=kind, bandwidth_bytes_per_s=rate_bytes_per_s * ports / gpus_per_node, ports_per_node=ports,
        port_bandwidth_bytes_per_s=rate_bytes_per_s, source=source,
    )  # fmt: skip


def _assumed(system: SystemEntry, scaleup: str | None, scaleout: str | None, gpus: int, up: ScaleUp) -> list[str]:
    """Say which links of the system are a convention of the catalogue rather than a fact."""
    said = []
    if scaleup is None and "convention" in system.scaleup.source:
        said.append(f"scale-up of {system.name}: {system.scaleup.source}")
    if up.domain_gpus < min(gpus, system.gpus_per_node):
        said.append(f"inside a node, GPUs of different scale-up domains of {up.domain_gpus} are priced over the NICs")
    network_used = gpus > max(system.gpus_per_node, up.domain_gpus)
    text = f"{system.scaleout.source} {system.scaleout.note}"
    if scaleout is None and network_used and "convention" in text:
        said.append(f"scale-out of {system.name}: {text.strip()}")
    return said


def _linked(cluster: Cluster, text: str) -> None:
    """Refuse a cluster whose GPUs have no link to each other."""
    alone = cluster.scaleup.domain_gpus if cluster.scaleup.kind != "none" else 1
    if cluster.scaleout.kind == "none" and cluster.gpus > alone:
        raise InputError(
            f"cluster {shown(text)} has {cluster.gpus} GPUs, but no network beyond {alone}; "
            "give --scaleout, for example ib-400"
        )

"""Entries of the catalogue as their files spell them: blocks of facts, each block with its source.

Quantities are text with a unit. Names say per GPU or per node, per direction or both, dense or sparse; a peak is
always dense (without 2:4 sparsity). A block's ``source`` covers all in it; ``disagreement`` is what others print.
"""

from __future__ import annotations

from typing import Literal

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.base.units import Unit, parse_quantity
from linkscale.hardware.types import Arch

Text = str | int | float
ScaleUpText = Literal["nvswitch", "nvlink-mesh", "bridge", "xgmi", "pcie", "none"]
FabricText = Literal["infiniband", "roce", "efa", "ethernet", "omni-path", "none"]
HostText = Literal["intel", "amd", "grace", "unknown"]


class Block(Model, frozen=True, kw_only=True):
    """Facts that share a source."""

    source: str
    disagreement: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise InputError("source is empty; say where the numbers come from")
        for name, unit in UNITS.get(type(self).__name__, {}).items():
            value = getattr(self, name)
            if value is not None:
                positive(value, unit, name)


class Peaks(Block, frozen=True, kw_only=True):
    """Dense FLOP/s per GPU. ``fp32`` is the vector rate; absent: not supported or not published."""

    fp32: Text | None = None
    tf32: Text | None = None
    bf16: Text | None = None
    fp16: Text | None = None
    fp8: Text | None = None
    fp4: Text | None = None


class Memory(Block, frozen=True, kw_only=True):
    """Device memory. ``label`` is the vendor's; ``usable`` what the driver reports as total, or the label as read."""

    label: Text
    reading: str
    usable: Text
    usable_source: str
    bandwidth: Text
    type: str


class NvLinks(Block, frozen=True, kw_only=True):
    """NVLink of one GPU; ``links`` times the rate of a link is the total."""

    generation: int
    links: int
    bandwidth_per_link_per_direction: Text
    bandwidth_per_direction: Text
    bandwidth_both_directions: Text


class PeerLinks(Block, frozen=True, kw_only=True):
    """A scale-up fabric that is no NVLink: xGMI, on-chip RoCE, ICI. ``peers``: links of one GPU."""

    kind: str
    bandwidth_per_direction: Text
    peers: int | None = None
    bandwidth_per_peer_per_direction: Text | None = None
    bandwidth_both_directions: Text | None = None


class Pcie(Block, frozen=True, kw_only=True):
    """The host link of one GPU."""

    generation: int
    bandwidth_x16_per_direction: Text


class ChipToChip(Block, frozen=True, kw_only=True):
    """The link between a GPU and its CPU where that is not PCIe."""

    bandwidth_per_direction: Text


class Power(Block, frozen=True, kw_only=True):
    """Watts at the label's limit; null where not published."""

    value: Text | None


class Clock(Block, frozen=True, kw_only=True):
    """Boost clock; ``highest`` is the highest that the driver shows."""

    value: Text
    highest: Text | None = None


class Count(Block, frozen=True, kw_only=True):
    """A number of things, at least 1."""

    value: int

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_1(self.value, "value")


class Size(Block, frozen=True, kw_only=True):
    """A number of bytes."""

    value: Text


class Temperatures(Block, frozen=True, kw_only=True):
    """Degrees Celsius at which the GPU acts."""

    target_c: int | None = None
    max_operating_c: int | None = None
    slowdown_c: int | None = None
    shutdown_c: int | None = None
    memory_max_operating_c: int | None = None


class Price(Block, frozen=True, kw_only=True):
    """US dollars, nominal, on a date. ``what``: list, purchase, on demand, and so on."""

    what: str
    usd: Text
    per: Literal["gpu", "node", "rack", "gpu hour", "node hour"]
    date: str = ""


class GpuEntry(Model, frozen=True, kw_only=True):
    """The file of one accelerator. ``default_system`` is what its bare name stands for in SYSTEM:GPUS."""

    name: str
    title: str
    arch: Arch
    peak_dense_per_gpu: Peaks
    memory_per_gpu: Memory
    power_per_gpu: Power
    sms_per_gpu: Count
    compute_capability: str = ""
    default_system: str = ""
    peer_to_peer: bool = True
    status: str = ""
    disagreement: str = ""
    note: str = ""
    nvlink_per_gpu: NvLinks | None = None
    peer_links_per_gpu: PeerLinks | None = None
    pcie_per_gpu: Pcie | None = None
    chip_to_chip_per_gpu: ChipToChip | None = None
    boost_clock: Clock | None = None
    l2_per_gpu: Size | None = None
    temperature_limits: Temperatures | None = None
    mfu_divisor_dense_per_gpu: Peaks | None = None
    prices: tuple[Price, ...] = ()


class ScaleUpFacts(Block, frozen=True, kw_only=True):
    """The fast domain. The bandwidth is the GPU's own unless the system gives fewer links."""

    kind: ScaleUpText
    domain_gpus: int
    bandwidth_per_gpu_per_direction: Text | None = None
    in_switch_reduction: bool = False
    nvswitch_generation: int | None = None
    nvswitch_chips: int | None = None


class ScaleOutFacts(Block, frozen=True, kw_only=True):
    """The network between nodes: ports that carry training traffic, of one node."""

    kind: FabricText
    ports_per_node: int
    bandwidth_per_port_per_direction: Text
    nic: str = ""


class Host(Block, frozen=True, kw_only=True):
    """The CPUs of a node."""

    vendor: HostText
    cpus_per_node: int | None = None
    model: str = ""


class HostMemory(Block, frozen=True, kw_only=True):
    """The memory of a node's CPUs, all channels of all CPUs together."""

    bandwidth: Text


class SystemEntry(Model, frozen=True, kw_only=True):
    """The file of one node, rack or cloud instance. ``gpus_per_node`` GPUs share a host."""

    name: str
    title: str
    gpu: str
    gpus_per_node: int
    scaleup: ScaleUpFacts
    scaleout: ScaleOutFacts
    host: Host
    host_memory_per_node: HostMemory | None = None
    cooling: str = ""
    status: str = ""
    disagreement: str = ""
    note: str = ""
    max_power_per_node: Power | None = None
    max_power_per_rack: Power | None = None
    prices: tuple[Price, ...] = ()

    def __post_init__(self) -> None:
        at_least_1(self.gpus_per_node, "gpus_per_node")
        at_least_1(self.scaleup.domain_gpus, "scaleup.domain_gpus")
        if self.scaleout.kind != "none":
            at_least_1(self.scaleout.ports_per_node, "scaleout.ports_per_node")


class NicEntry(Block, frozen=True, kw_only=True):
    """One network adapter; the rate is of the whole card and per direction."""

    bandwidth_per_card_per_direction: Text
    pcie_generation: str = ""
    power: Text | None = None


class SwitchEntry(Block, frozen=True, kw_only=True):
    """One network switch. The capacity counts both directions, as vendors print it."""

    kind: FabricText
    ports: int | None = None
    bandwidth_per_port_per_direction: Text | None = None
    capacity_both_directions: Text | None = None
    in_switch_reduction: bool = False
    latency_ns: str = ""


class NvSwitchEntry(Block, frozen=True, kw_only=True):
    """One generation of NVSwitch."""

    nvlink_generation: int
    in_switch_reduction: bool
    domain_gpus: str
    ports: int | None = None


UNITS: dict[str, dict[str, Unit]] = {
    "Peaks": dict.fromkeys(("fp32", "tf32", "bf16", "fp16", "fp8", "fp4"), "flops/s"),
    "Memory": {"label": "bytes", "usable": "bytes", "bandwidth": "bytes/s"},
    "NvLinks": dict.fromkeys(
        ("bandwidth_per_link_per_direction", "bandwidth_per_direction", "bandwidth_both_directions"), "bytes/s"
    ),
    "PeerLinks": dict.fromkeys(
        ("bandwidth_per_direction", "bandwidth_per_peer_per_direction", "bandwidth_both_directions"), "bytes/s"
    ),
    "Pcie": {"bandwidth_x16_per_direction": "bytes/s"},
    "ChipToChip": {"bandwidth_per_direction": "bytes/s"},
    "Power": {"value": "W"},
    "Clock": {"value": "Hz", "highest": "Hz"},
    "Size": {"value": "bytes"},
    "Price": {"usd": "usd"},
    "ScaleUpFacts": {"bandwidth_per_gpu_per_direction": "bytes/s"},
    "ScaleOutFacts": {"bandwidth_per_port_per_direction": "bytes/s"},
    "HostMemory": {"bandwidth": "bytes/s"},
    "NicEntry": {"bandwidth_per_card_per_direction": "bytes/s", "power": "W"},
    "SwitchEntry": {"bandwidth_per_port_per_direction": "bytes/s", "capacity_both_directions": "bytes/s"},
}
"""What each quantity is measured in, by block."""


def positive(value: Text, unit: Unit, name: str) -> float:
    """Return a quantity in SI units; raise InputError for what is no quantity or not more than 0."""
    amount = parse_quantity(value, unit, name)
    if amount <= 0.0:
        wrong = "negative" if amount else "zero"
        raise InputError(f"{name}: {value!r} is {wrong}; write more than 0, or leave out what the part lacks")
    return amount


def at_least_1(value: int, name: str) -> None:
    """Raise InputError for a count of none."""
    if value < 1:
        raise InputError(f"{name} is {value}; it must be at least 1")

"""Cluster: what GPUs there are and how they are linked. All bandwidths are per direction."""

from __future__ import annotations

from typing import Literal

from linkscale.base.errors import InputError
from linkscale.base.model import Model
from linkscale.hardware.types import Gpu

ScaleUpKind = Literal["nvswitch", "nvlink-mesh", "bridge", "xgmi", "pcie", "none"]
FabricKind = Literal["infiniband", "roce", "efa", "ethernet", "omni-path", "none"]
HostCpu = Literal["intel", "amd", "grace", "unknown"]


class ScaleUp(Model, frozen=True):
    """The fast domain: NVLink/NVSwitch, xGMI, or the PCIe box that takes its place.

    ``bandwidth_bytes_per_s`` is wire rate per GPU and direction; 0 for ``none``. ``nvls``: in-switch reduction.
    ``peer_to_peer`` is False where GPUs can only reach each other through host memory (GeForce cards).
    """

    kind: ScaleUpKind
    domain_gpus: int
    bandwidth_bytes_per_s: float
    nvls: bool = False
    peer_to_peer: bool = True
    source: str = ""


class ScaleOut(Model, frozen=True):
    """The network between nodes. ``bandwidth_bytes_per_s`` is wire rate per GPU and direction."""

    kind: FabricKind
    bandwidth_bytes_per_s: float
    ports_per_node: int
    port_bandwidth_bytes_per_s: float
    source: str = ""


class Cluster(Model, frozen=True):
    """A homogeneous cluster. ``gpus_per_node`` is what shares a host; the scale-up domain may span nodes."""

    name: str
    gpu: Gpu
    gpus: int
    gpus_per_node: int
    scaleup: ScaleUp
    scaleout: ScaleOut
    host_cpu: HostCpu = "unknown"
    host_memory_bytes_per_s: float = 0.0
    """Label rate of the memory of a node's CPUs; 0 where it is not known."""
    assumptions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InputError(f"cluster {self.name!r} has {self.gpus} GPUs; it needs at least 1")

    @property
    def nodes(self) -> int:
        """Nodes, the last possibly part filled."""
        return -(-self.gpus // self.gpus_per_node)

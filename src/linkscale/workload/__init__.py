"""Architecture → layers → FLOPs, bytes, activations."""

from linkscale.workload.architecture import Architecture
from linkscale.workload.config import from_config, load_architecture
from linkscale.workload.counts import active_params, flops_per_token, params, params_by_part
from linkscale.workload.layers import Decoder, decoder
from linkscale.workload.packaged import packaged_config, packaged_models

__all__ = [
    "Architecture", "Decoder", "active_params", "decoder", "flops_per_token", "from_config", "load_architecture",
    "packaged_config", "packaged_models", "params", "params_by_part",
]  # fmt: skip

"""What a configuration states beyond what its family reads: such fields are named, never passed over in silence."""

from __future__ import annotations

import re
from typing import Any

# Names of fields that change what a layer is, and what they mean. The first that fits counts.
MEANINGS = {
    r"expert|moe": "a mixture of experts", r"(^|_)(q|kv|o)_lora_rank|latent": "latent attention",
    r"^index|indexer": "sparse attention by an index", r"compress": "compressed attention",
    r"^hc_": "hyper-connections",
    r"^linear_(attn|num|key|value|conv|head)|delta|kda": "linear attention",
    r"mamba|ssm|conv_kernel|d_conv|d_state": "a state-space layer",
    r"nextn|mtp": "multi-token prediction", r"vision_config|audio_config": "a tower beside the text",
    r"text_config|thinker|talker": "a nested model", r"is_encoder_decoder": "an encoder",
    r"cross_attention": "cross-attention",
    r"layer_types|block_type|layers_block|hybrid|sliding_window_pattern|_layer_pattern": "layers of several kinds",
    r"chunk_size$|sliding_window$|^window": "attention to part of the sequence",
    r"sink|^attn_output_gate|head_wise": "another attention", r"n_?gram|per_layer|laurel|altup": "another embedding",
}  # fmt: skip

# Of those, what changes how a model is trained, run or stored, not its shape.
HARMLESS = re.compile(
    r"coef|loss|_dtype|_eps$|_iters|noise|jitter|overlap|_init|scal|method|score|scoring|_func$|prob|alpha|beta|"
    r"normali|renorm|_norm_|aux|_act$|hidden_act|theta|rope|feed_forward|no_repeat|cache|kernels|parallel|"
    r"cross_attention_hidden_size|^max_window_layers|use_sliding_window|_token|time_step|seq_|limit|capacity|"
    r"router_type|_impl|backend|quant|^ep_|residual|multiplier|_step_|_weight$|drop|use_mamba|expert_dtype|share_for_mtp|"
    r"shared_moe_mode"
)


def not_understood(data: dict[str, Any], used: set[str], prefix: str = "") -> dict[str, str]:
    """Return the stated fields that change a layer and that nobody read, each with its meaning."""
    found: dict[str, str] = {}
    for field, value in data.items():
        name = prefix + field
        if name in used and isinstance(value, dict):
            found.update(not_understood(value, used, name + "."))
        elif name not in used and _says_something(value) and not HARMLESS.search(field):
            meaning = next((what for pattern, what in MEANINGS.items() if re.search(pattern, field)), None)
            if meaning:
                found[name] = meaning
    return found


def _says_something(value: object) -> bool:
    """Whether a value is more than empty, a switch turned off, or layers that are all the usual ones."""
    if isinstance(value, list):
        return bool(value) and set(map(str, value)) != {"full_attention"}
    return bool(value) and value != "none"

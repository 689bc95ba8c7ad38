"""One function per family of dense decoders: its ``config.json`` → Architecture.

Defaults are those of the family's configuration class where its files leave a field out; what has no default there
is required. Every family is checked parameter by parameter against the real class (tests/workload).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linkscale.base.errors import InputError
from linkscale.workload.architecture import Architecture
from linkscale.workload.fields import Fields


def _core(f: Fields, name: str) -> dict[str, Any]:
    """Fields that most families spell alike."""
    hidden = f.integer("hidden_size", "n_embd", "d_model")
    heads = f.integer("num_attention_heads", "n_head", "n_heads")
    if not heads or hidden % heads and not f.data.get("head_dim"):
        raise InputError(f"{f.where}: hidden_size = {hidden} does not divide by num_attention_heads = {heads}")
    return {
        "name": name,
        "model_type": f.kind,
        "vocab": f.integer("vocab_size"),
        "hidden": hidden,
        "layers": f.integer("num_hidden_layers", "n_layer", "n_layers"),
        "heads": heads,
        "kv_heads": f.integer("num_key_value_heads", default=heads),
        "head_dim": f.integer("head_dim", default=hidden // heads),
        "max_positions": f.integer("max_position_embeddings", "n_positions", "max_seq_len", default=0),
        "tied_embeddings": f.flag("tie_word_embeddings", True),
    }


def _window(f: Fields, layers: int) -> dict[str, Any]:
    """Sliding window of the layers that have one."""
    window = f.data.get("sliding_window")
    if not window or f.data.get("use_sliding_window") is False:
        return {}
    return {"window": f.integer("sliding_window"), "windowed_layers": layers}


def llama(f: Fields, name: str) -> Architecture:
    """Llama, and what kept its layer: RMS norms, gated MLP, rotary positions, no biases."""
    bias = f.flag("attention_bias", False)
    return Architecture(
        **{**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", False)},
        ffn_hidden=f.integer("intermediate_size"),
        gated_mlp=True,
        activation=f.text("hidden_act", default="silu"),
        qkv_bias=bias,
        attention_out_bias=bias,
        mlp_bias=f.flag("mlp_bias", False),
    )


def mistral(f: Fields, name: str) -> Architecture:
    """Mistral: Llama's layer with a sliding window."""
    core = {**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", False)}
    return Architecture(
        **core, ffn_hidden=f.integer("intermediate_size"), gated_mlp=True, **_window(f, core["layers"])
    )


def qwen2(f: Fields, name: str) -> Architecture:
    """Qwen2 and 2.5: biases on query, key and value, though no field says so."""
    core = {**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", False)}
    first = min(f.integer("max_window_layers", default=core["layers"]), core["layers"])
    window = _window(f, core["layers"] - first) if f.data.get("use_sliding_window") else {}
    return Architecture(
        **core, ffn_hidden=f.integer("intermediate_size"), gated_mlp=True, qkv_bias=True, **window
    )  # fmt: skip


def qwen3(f: Fields, name: str) -> Architecture:
    """Qwen3: no biases unless asked for, norms on every query and key head."""
    core = {**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", False)}
    core["head_dim"] = f.integer("head_dim", default=128)
    bias = f.flag("attention_bias", False)
    return Architecture(
        **core, ffn_hidden=f.integer("intermediate_size"), gated_mlp=True, qk_norm="head", qkv_bias=bias,
        attention_out_bias=bias,
    )  # fmt: skip


def gpt2(f: Fields, name: str) -> Architecture:
    """GPT-2 and GPT-3: layer norms, biases everywhere, learned positions, dropout."""
    core = _core(f, name)
    return Architecture(
        **core, **GPT_BIASES, ffn_hidden=f.integer("n_inner", default=4 * core["hidden"]), positions="learned",
        activation=f.text("activation_function", default="gelu_new"),
        dropout=f.positive("attn_pdrop", "resid_pdrop", "embd_pdrop"),
    )  # fmt: skip


GPT_BIASES: dict[str, Any] = {
    "gated_mlp": False, "norm": "layernorm", "norm_bias": True, "qkv_bias": True, "attention_out_bias": True,
    "mlp_bias": True,
}  # fmt: skip


def gpt_neox(f: Fields, name: str) -> Architecture:
    """GPT-NeoX and Pythia: attention and MLP in parallel, part of each head rotates, untied output."""
    core = {**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", False)}
    bias = f.flag("attention_bias", True)
    share = f.data.get("rotary_pct", 0.25)
    return Architecture(
        **core, **{**GPT_BIASES, "qkv_bias": bias, "attention_out_bias": bias},
        ffn_hidden=f.integer("intermediate_size"), activation=f.text("hidden_act", default="gelu"),
        parallel_residual=f.flag("use_parallel_residual", True),
        rotary_dim=max(2, int(core["head_dim"] * float(share if isinstance(share, int | float) else 0.25))),
    )  # fmt: skip


def mpt(f: Fields, name: str) -> Architecture:
    """MPT: no biases, linear attention biases instead of positions, tied output."""
    core = _core(f, name)
    attention = f.data.get("attn_config") if isinstance(f.data.get("attn_config"), dict) else {}
    if attention.get("clip_qkv") is None and attention.get("qk_ln"):
        raise InputError(f"{f.where}: attn_config.qk_ln is not understood; use a configuration without it")
    alibi = bool(attention.get("alibi", True))
    return Architecture(
        **core, gated_mlp=False, norm="layernorm", activation="gelu",
        ffn_hidden=f.integer("expansion_ratio", default=4) * core["hidden"],
        positions="alibi" if alibi else "learned",
    )  # fmt: skip


def falcon(f: Fields, name: str) -> Architecture:
    """Falcon: attention and MLP in parallel, few key-value heads; the newer layer has two norms, the older one."""
    core = {**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", True)}
    newer = f.flag("new_decoder_architecture", False)
    many = f.integer("num_kv_heads", default=core["heads"]) if newer else core["heads"]
    core["kv_heads"] = 1 if f.flag("multi_query", True) and not newer else many
    parallel = f.flag("parallel_attn", True) or newer
    bias = f.flag("bias", False)
    return Architecture(
        **core, **{**GPT_BIASES, "qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias},
        ffn_hidden=f.integer("ffn_hidden_size", default=4 * core["hidden"]), activation="gelu",
        positions="alibi" if f.flag("alibi", False) else "rope", parallel_residual=parallel,
        norms=f.integer("num_ln_in_parallel_attn", default=2) if newer else (1 if parallel else 2),
    )  # fmt: skip


def nemotron(f: Fields, name: str) -> Architecture:
    """Nemotron-4: layer norms with biases, squared ReLU without a gate, half of each head rotates."""
    core = {**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", False)}
    bias = f.flag("attention_bias", False)
    share = f.data.get("partial_rotary_factor", 0.5)
    return Architecture(
        **core, ffn_hidden=f.integer("intermediate_size"), gated_mlp=False, activation="relu2", norm="layernorm",
        norm_bias=True, qkv_bias=bias, attention_out_bias=bias, mlp_bias=f.flag("mlp_bias", False),
        rotary_dim=max(2, int(core["head_dim"] * float(share if isinstance(share, int | float) else 0.5))),
    )  # fmt: skip


def opt(f: Fields, name: str) -> Architecture:
    """OPT: GPT's layer with two spare position rows, tied output."""
    core = _core(f, name)
    if f.integer("word_embed_proj_dim", default=core["hidden"]) != core["hidden"]:
        raise InputError(f"{f.where}: word_embed_proj_dim other than hidden_size is not understood")
    core["max_positions"] += 2
    return Architecture(
        **core, **GPT_BIASES, ffn_hidden=f.integer("ffn_dim"), positions="learned", activation="relu",
        dropout=f.positive("dropout", "attention_dropout"),
    )  # fmt: skip


def starcoder2(f: Fields, name: str) -> Architecture:
    """StarCoder2: GPT's biased layer with rotary positions and grouped heads."""
    core = _core(f, name)
    bias = f.flag("use_bias", True)
    return Architecture(
        **core, **{**GPT_BIASES, "qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias},
        ffn_hidden=f.integer("intermediate_size"), activation="gelu", **_window(f, core["layers"]),
    )  # fmt: skip


def olmo2(f: Fields, name: str) -> Architecture:
    """OLMo 2: norms after attention and MLP, and over all query and key features."""
    core = {**_core(f, name), "tied_embeddings": f.flag("tie_word_embeddings", False)}
    bias = f.flag("attention_bias", False)
    return Architecture(
        **core, ffn_hidden=f.integer("intermediate_size"), gated_mlp=True, qk_norm="full", qkv_bias=bias,
        attention_out_bias=bias,
    )  # fmt: skip


FAMILIES: dict[str, Callable[[Fields, str], Architecture]] = {
    "llama": llama, "mistral": mistral, "qwen2": qwen2, "qwen3": qwen3, "gpt2": gpt2, "gpt_neox": gpt_neox,
    "mpt": mpt, "falcon": falcon, "nemotron": nemotron, "opt": opt, "starcoder2": starcoder2, "olmo2": olmo2,
}  # fmt: skip

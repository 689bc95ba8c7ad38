"""One function per family of dense decoders: the fields of its ``config.json`` → the fields of an Architecture.

A field that a file may leave out takes the value that the family's configuration class takes; where classes of one
family disagree about it, or where it decides the shape, it is required. Every family is compared parameter by
parameter with the real class (tests/workload).
"""

from __future__ import annotations

from collections.abc import Callable

from linkscale.workload.architecture import MOST
from linkscale.workload.fields import Fields
from linkscale.workload.layout import Shape, attention, dense
from linkscale.workload.parts import LayerKind

_GPT = ("n_embd", "n_head", "n_layer", "n_positions")
_MPT = ("d_model", "n_heads", "n_layers", "max_seq_len")
_OWN_NAMES = {
    "gpt2": _GPT, "gpt_bigcode": _GPT, "gptj": _GPT, "mpt": _MPT, "dbrx": _MPT,
    "bloom": ("hidden_size", "n_head", "n_layer", "seq_length"),
}  # fmt: skip
_NAMES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings")
"""Width, heads, layers and positions, as most families spell them; some have names of their own beside."""


def _core(f: Fields, layers: int = 0) -> Shape:
    """Fields that every family has."""
    width, head, layer, position = zip(_OWN_NAMES.get(f.kind, _NAMES), _NAMES, strict=True)
    hidden, heads = f.count(*width), f.count(*head)
    return {
        "vocab": f.count("vocab_size"),
        "hidden": hidden,
        "layers": layers or f.count(*layer),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _head_dim(f, hidden, heads),
        "max_positions": f.count_or(0, *position),
        "tied_embeddings": f.flag("tie_word_embeddings", True),
    }


def _head_dim(f: Fields, hidden: int, heads: int) -> int:
    stated = f.count_or(0, "head_dim")
    if not stated and hidden % heads:
        raise f.wrong("hidden_size", f"= {hidden} does not divide by {heads} heads; state head_dim")
    return stated or hidden // heads


def rotary(f: Fields, head_dim: int, share: float) -> int:
    """Features of a head that rotate: newer files nest the share in ``rope_parameters``."""
    nested = f.part("rope_parameters").share("partial_rotary_factor", share)
    return int(head_dim * f.share("rotary_pct", f.share("partial_rotary_factor", nested)))


def llama_like(
    f: Fields, *, tied: bool = False, grouped: bool = False, head_dim: bool = False, mlp: bool = True, layers: int = 0
) -> Shape:
    """Llama's layer: RMS norms, gated MLP, rotary positions, no biases.

    ``grouped``, ``head_dim``: the family's class has a number of its own where the field is left out, so it must be
    stated. ``mlp`` False: no layer has a plain MLP, whose width may then be left out. ``layers``: how many there are,
    where another field says so.
    """
    shape = _core(f, layers)
    kv_heads = f.count("num_key_value_heads") if grouped else f.count_or(shape["heads"], "num_key_value_heads")
    return {
        **shape, "kv_heads": kv_heads, "tied_embeddings": f.flag("tie_word_embeddings", tied), "gated_mlp": True,
        "head_dim": f.count("head_dim") if head_dim else shape["head_dim"],
        "ffn_hidden": f.count("intermediate_size") if mlp else f.count_or(MOST, "intermediate_size"),
        "activation": f.text("hidden_act", "silu"),
        "dropout": f.share("attention_dropout", 0.0) > 0 or f.share("resid_pdrop", 0.0) > 0,
    }  # fmt: skip


def attention_bias(f: Fields, default: bool = False) -> Shape:
    """Biases on query, key, value and the output of attention, together."""
    bias = f.flag("attention_bias", default)
    return {"qkv_bias": bias, "attention_out_bias": bias}


def _windows(f: Fields, layers: int, windowed: int) -> Shape:
    """Sliding window: of the layers that ``layer_types`` lists, else of ``windowed`` layers."""
    window = f.count_or(0, "sliding_window")
    types = f.names("layer_types")
    if types is not None:
        known = {"full_attention", "sliding_attention"}
        strange = sorted(set(types) - known)
        if strange:
            raise f.wrong("layer_types", f"holds {strange[0]!r}, which is not understood yet; known: {sorted(known)}")
        if len(types) != layers:
            raise f.wrong("layer_types", f"lists {len(types)} layers, but the model has {layers}")
        windowed = types.count("sliding_attention")
    return {"window": window, "windowed_layers": windowed} if window and windowed else {}


def llama(f: Fields) -> Shape:
    """Llama, and what kept its layer."""
    return {**llama_like(f), **attention_bias(f), "mlp_bias": f.flag("mlp_bias", False)}


def mistral(f: Fields) -> Shape:
    """Mistral: Llama's layer with a sliding window (null for none) in every layer."""
    if "sliding_window" not in f.data:
        raise f.wrong("sliding_window", "is missing; state its tokens, or null for none")
    shape = llama_like(f, grouped=True)
    return {**shape, **_windows(f, shape["layers"], shape["layers"])}


def phi3(f: Fields) -> Shape:
    """Phi-3: Llama's layer, its matrices fused, often with a sliding window."""
    shape = llama_like(f)
    dim = shape["head_dim"]
    return {**shape, **_windows(f, shape["layers"], shape["layers"]), "rotary_dim": rotary(f, dim, 1.0)}


def qwen2(f: Fields) -> Shape:
    """Qwen2 and 2.5: biases on query, key and value, though no field says so."""
    return {**_qwen(f), "qkv_bias": True}


def qwen3(f: Fields) -> Shape:
    """Qwen3: norms on every query and key head, no biases unless asked for."""
    return {**_qwen(f, head_dim=True), **attention_bias(f), "qk_norm": "head"}


def _qwen(f: Fields, *, head_dim: bool = False) -> Shape:
    shape = llama_like(f, grouped=True, head_dim=head_dim)
    if not f.flag("use_sliding_window", False):
        f.ignore("sliding_window", "max_window_layers", "layer_types")
        return shape
    full = min(f.count("max_window_layers"), shape["layers"])
    return {**shape, **_windows(f, shape["layers"], shape["layers"] - full)}


def gemma(f: Fields) -> Shape:
    """Gemma: wide heads, tied output."""
    return {**llama_like(f, tied=True, grouped=True, head_dim=True), **attention_bias(f)}


def gemma2(f: Fields) -> Shape:
    """Gemma 2: norms before and after each half of a layer, every other layer with a window."""
    shape = gemma(f)
    windows = _windows(f, shape["layers"], -(-shape["layers"] // 2))
    return {**shape, **windows, "norm_at": "both", "activation": f.text("hidden_activation", "gelu_pytorch_tanh")}


def gemma3_text(f: Fields) -> Shape:
    """Gemma 3: Gemma 2's layer with norms on query and key heads, one full layer in six.

    Published files leave out what is the class's own: heads and vocabulary.
    """
    f = f.filled({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208})
    shape = gemma2(f)
    pattern = f.count_or(6, "sliding_window_pattern", "_sliding_window_pattern")
    windows = _windows(f, shape["layers"], shape["layers"] - shape["layers"] // pattern)
    return {**shape, "window": None, "windowed_layers": 0, **windows, "qk_norm": "head"}


def granite(f: Fields) -> Shape:
    """Granite: Llama's layer with scalar multipliers."""
    return llama(f)


def olmo(f: Fields) -> Shape:
    """OLMo: Llama's layer with layer norms that have no parameters."""
    return {**llama_like(f), **attention_bias(f), "norm": "layernorm", "norm_weight": False}


def olmo2(f: Fields) -> Shape:
    """OLMo 2: norms on what attention and MLP return, and over all query and key features."""
    return {**llama_like(f), **attention_bias(f), "norm_at": "output", "qk_norm": "full"}


def glm(f: Fields) -> Shape:
    """GLM-4: Llama's layer with biases on query, key and value, half of each head rotates."""
    shape = llama_like(f, grouped=True, head_dim=True)
    turned = rotary(f, shape["head_dim"], 0.5)
    return {**shape, "qkv_bias": f.flag("attention_bias", True), "rotary_dim": turned}


def glm4(f: Fields) -> Shape:
    """GLM-4-0414: GLM-4 with norms after each half of a layer too."""
    return {**glm(f), "norm_at": "both"}


def cohere(f: Fields) -> Shape:
    """Command R: attention and MLP in parallel behind one layer norm without bias, tied output."""
    norms = "full" if f.flag("use_qk_norm", False) else "none"
    return {
        **llama_like(f, tied=True), **attention_bias(f), "norm": "layernorm", "parallel_residual": True, "norms": 1,
        "qk_norm": norms,
    }  # fmt: skip


def stablelm(f: Fields) -> Shape:
    """StableLM 2: Llama's layer with layer norms, part of each head rotates."""
    shape = llama_like(f, grouped=True)
    parallel = f.flag("use_parallel_residual", False)
    return {
        **shape, "norm": "layernorm", "norm_bias": True, "qkv_bias": f.flag("use_qkv_bias", False),
        "parallel_residual": parallel, "norms": 1 if parallel else 2,
        # One norm per head with weights of its own: as many parameters as one over all features.
        "qk_norm": "full" if f.flag("qk_layernorm", False) else "none",
        "rotary_dim": rotary(f, shape["head_dim"], 0.25), "dropout": f.share("hidden_dropout", 0.0) > 0,
    }  # fmt: skip


def gpt_like(f: Fields, *, tied: bool = True, bias: bool = True) -> Shape:
    """GPT's layer: layer norms with biases, a plain MLP four times as wide."""
    shape = _core(f)
    return {
        **shape, "tied_embeddings": f.flag("tie_word_embeddings", tied), "gated_mlp": False, "norm": "layernorm",
        "norm_bias": True, "qkv_bias": bias, "attention_out_bias": bias, "mlp_bias": bias,
        "ffn_hidden": f.count_or(4 * shape["hidden"], "n_inner"),
        "activation": f.text("activation_function", "gelu_new"),
        "dropout": max(f.share("resid_pdrop", 0.0), f.share("attn_pdrop", 0.0), f.share("hidden_dropout", 0.0)) > 0,
    }  # fmt: skip


def gpt2(f: Fields) -> Shape:
    """GPT-2 and GPT-3: learned positions, biases everywhere; dropout unless turned off."""
    positions = f.count("n_positions", "max_position_embeddings")
    dropout = max(f.share("resid_pdrop", 0.1), f.share("attn_pdrop", 0.1)) > 0
    return {**gpt_like(f), "positions": "learned", "max_positions": positions, "dropout": dropout}


def gpt_bigcode(f: Fields) -> Shape:
    """StarCoder: GPT-2's layer with one key-value head."""
    return {**gpt2(f), **({"kv_heads": 1} if f.flag("multi_query", True) else {})}


def gptj(f: Fields) -> Shape:
    """GPT-J: attention and MLP in parallel behind one norm, biases in the MLP and on the output."""
    shape = gpt_like(f, tied=False, bias=False)
    turned = f.count_or(shape["head_dim"], "rotary_dim")
    return {**shape, "mlp_bias": True, "lm_head_bias": True, "parallel_residual": True, "norms": 1,
            "rotary_dim": turned}  # fmt: skip


def gpt_neox(f: Fields) -> Shape:
    """GPT-NeoX and Pythia: attention and MLP in parallel with a norm each, part of each head rotates."""
    shape = gpt_like(f, tied=False)
    return {
        **shape, **attention_bias(f, True), "ffn_hidden": f.count("intermediate_size"),
        "activation": f.text("hidden_act", "gelu"), "parallel_residual": f.flag("use_parallel_residual", True),
        "rotary_dim": rotary(f, shape["head_dim"], 0.25),
    }  # fmt: skip


def bloom(f: Fields) -> Shape:
    """BLOOM: GPT's layer, linear attention biases, a norm behind the embedding."""
    return {**gpt_like(f), "positions": "alibi", "embedding_norm": True, "activation": "gelu"}


def mimo(f: Fields) -> Shape:
    """MiMo-7B: Qwen2's layer, and modules that predict further tokens."""
    shape = {**qwen2(f), "qkv_bias": f.flag("attention_bias", True)}
    kind = LayerKind("prediction layer", attention(shape), dense(shape))
    modules = f.number_or(0, "num_nextn_predict_layers")
    return {**shape, "prediction_kinds": (kind,) if modules else (), "prediction_modules": modules}


def mpt(f: Fields) -> Shape:
    """MPT: GPT's layer; biases, positions and key-value heads as stated (its two classes differ in defaults)."""
    bias = not f.flag("no_bias")
    attention = f.part("attn_config")
    if attention.flag("qk_ln", False):
        raise attention.wrong("qk_ln", "= true is not understood yet; only MPT without query-key norms is")
    shape = gpt_like(f, bias=bias)
    positions = _mpt_positions(f, attention)
    if positions == "learned":
        f.count("max_seq_len")
    return {
        **shape, "norm_bias": bias, "activation": "gelu", "positions": positions,
        "kv_heads": _mpt_kv_heads(attention, shape["heads"]),
        "ffn_hidden": f.count_or(4, "expansion_ratio") * shape["hidden"],
        "dropout": f.share("resid_pdrop", 0.0) > 0 or attention.share("attn_pdrop", 0.0) > 0,
    }  # fmt: skip


def _mpt_positions(f: Fields, attention: Fields) -> str:
    if attention.flag("alibi"):
        return "alibi"
    if attention.flag("rope", False):
        return "rope"
    return "learned" if f.flag("learned_pos_emb", True) else "none"


def _mpt_kv_heads(attention: Fields, heads: int) -> int:
    match attention.text("attn_type", "multihead_attention"):
        case "multihead_attention":
            return heads
        case "multiquery_attention":
            return 1
        case "grouped_query_attention":
            return attention.count("kv_n_heads")
        case other:
            raise attention.wrong("attn_type", f"= {other!r} is not understood; multihead_attention would be")


def falcon(f: Fields) -> Shape:
    """Falcon: attention and MLP in parallel, few key-value heads; one norm in older layers, two in newer ones."""
    newer = f.flag("new_decoder_architecture", False)
    parallel = f.flag("parallel_attn", True)
    shape = gpt_like(f, bias=f.flag("bias", False))
    return {
        **shape, "kv_heads": _falcon_kv_heads(f, shape["heads"], newer), "activation": f.text("activation", "gelu"),
        "ffn_hidden": f.count_or(4 * shape["hidden"], "ffn_hidden_size"),
        "positions": "alibi" if f.flag("alibi", False) else "rope", "parallel_residual": parallel or newer,
        "norms": f.count_or(2 if newer else 1, "num_ln_in_parallel_attn") if parallel else 2,
    }  # fmt: skip


def _falcon_kv_heads(f: Fields, heads: int, newer: bool) -> int:
    if newer:
        return f.count_or(heads, "num_kv_heads", "n_head_kv")
    return 1 if f.flag("multi_query", True) else heads


def nemotron(f: Fields) -> Shape:
    """Nemotron-4: layer norms with biases, squared ReLU without a gate, half of each head rotates."""
    shape = llama_like(f)
    return {
        **shape, **attention_bias(f), "gated_mlp": False, "activation": f.text("hidden_act", "relu2"),
        "norm": "layernorm", "norm_bias": True, "mlp_bias": f.flag("mlp_bias", False),
        "rotary_dim": rotary(f, shape["head_dim"], 0.5),
    }  # fmt: skip


def opt(f: Fields) -> Shape:
    """OPT: GPT's layer with ReLU and two spare rows of positions; the 350M model norms last."""
    shape = gpt_like(f, bias=f.flag("enable_bias", True))
    if f.count_or(shape["hidden"], "word_embed_proj_dim") != shape["hidden"]:
        raise f.wrong("word_embed_proj_dim", "differs from hidden_size, which is not understood yet")
    first = f.flag("do_layer_norm_before", True)
    affine = f.flag("layer_norm_elementwise_affine", True)
    return {
        **shape, "ffn_hidden": f.count("ffn_dim"), "positions": "learned",
        "max_positions": f.count("max_position_embeddings"), "spare_positions": 2,
        "activation": f.text("activation_function", "relu"),
        "norm_at": "input" if first else "output", "norm_weight": affine, "norm_bias": affine,
        "final_norm": first and not f.flag("_remove_final_layer_norm", False),
        "dropout": f.share("dropout", 0.1) > 0,
    }  # fmt: skip


def phi(f: Fields) -> Shape:
    """Phi-1 to Phi-2: attention and MLP in parallel behind one norm, biases everywhere, output included."""
    if f.flag("qk_layernorm", False):
        raise f.wrong("qk_layernorm", "= true is not understood yet; only Phi without query-key norms is")
    shape = gpt_like(f, tied=False)
    return {
        **shape, "kv_heads": f.count_or(shape["heads"], "num_key_value_heads"),
        "ffn_hidden": f.count("intermediate_size"), "activation": f.text("hidden_act", "gelu_new"),
        "lm_head_bias": True, "parallel_residual": True, "norms": 1,
        "rotary_dim": rotary(f, shape["head_dim"], 0.5),
    }  # fmt: skip


def starcoder2(f: Fields) -> Shape:
    """StarCoder2: GPT's layer with rotary positions, grouped heads, often a window in every layer."""
    shape = gpt_like(f, bias=f.flag("use_bias", True))
    return {
        **shape, "kv_heads": f.count("num_key_value_heads"), "ffn_hidden": f.count("intermediate_size"),
        "activation": f.text("hidden_act", "gelu_pytorch_tanh"), **_windows(f, shape["layers"], shape["layers"]),
        "dropout": f.share("residual_dropout", 0.0) > 0,
    }  # fmt: skip


DENSE_FAMILIES: dict[str, Callable[[Fields], Shape]] = {
    family.__name__: family
    for family in (
        llama, mistral, phi3, qwen2, qwen3, gemma, gemma2, gemma3_text, granite, olmo, olmo2, glm, glm4, cohere,
        stablelm, gpt2, gpt_bigcode, gptj, gpt_neox, bloom, mpt, falcon, nemotron, opt, phi, starcoder2, mimo,
    )
}  # fmt: skip
"""``model_type`` → its reader."""

"""Shrunken configurations of every family, with the switches that change a layer."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

LLAMA: Config = {
    "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 80, "max_position_embeddings": 64,
}  # fmt: skip
GPT: Config = {"vocab_size": 96, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 64}
NEOX: Config = {**LLAMA, "intermediate_size": 192}
WIDE: Config = {**LLAMA, "head_dim": 24}

FAMILIES: dict[str, list[Config]] = {
    "llama": [LLAMA, {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, WIDE,
              {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}],
    "mistral": [{**LLAMA, "sliding_window": 8}, {**WIDE, "sliding_window": None}],
    "phi3": [{**LLAMA, "pad_token_id": 0}, {**LLAMA, "sliding_window": 8, "pad_token_id": 0}],
    "qwen2": [{**LLAMA, "use_sliding_window": False, "sliding_window": 8, "max_window_layers": 1},
              {**LLAMA, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
              {**LLAMA, "tie_word_embeddings": True}],
    "qwen3": [WIDE, {**WIDE, "attention_bias": True, "tie_word_embeddings": True}],
    "gemma": [WIDE, {**WIDE, "attention_bias": True}],
    "gemma2": [{**WIDE, "sliding_window": 8}],
    "gemma3_text": [{**WIDE, "sliding_window": 8},
                    {**WIDE, "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                     "sliding_window": 8}],
    "granite": [LLAMA, {**LLAMA, "attention_bias": True, "mlp_bias": True}],
    "olmo": [LLAMA, {**LLAMA, "attention_bias": True}],
    "olmo2": [LLAMA, {**LLAMA, "attention_bias": True}],
    "glm": [{**WIDE, "pad_token_id": 0}, {**WIDE, "attention_bias": False, "pad_token_id": 0}],
    "glm4": [{**WIDE, "pad_token_id": 0}],
    "cohere": [LLAMA, {**LLAMA, "use_qk_norm": True, "attention_bias": True}],
    "stablelm": [LLAMA, {**LLAMA, "use_qkv_bias": True, "use_parallel_residual": True},
                 {**LLAMA, "qk_layernorm": True}],
    "gpt2": [GPT, {**GPT, "n_inner": 64}],
    "gpt_bigcode": [GPT, {**GPT, "multi_query": False}],
    "gptj": [{**GPT, "rotary_dim": 4}],
    "gpt_neox": [NEOX, {**NEOX, "attention_bias": False, "use_parallel_residual": False, "rotary_pct": 0.5}],
    "bloom": [{"vocab_size": 96, "hidden_size": 48, "n_layer": 3, "n_head": 4}],
    "mpt": [{"vocab_size": 96, "d_model": 48, "n_layers": 3, "n_heads": 4, "max_seq_len": 64, "no_bias": True,
             "attn_config": {"alibi": True}}],
    "falcon": [
        {**LLAMA, "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True},
        {**LLAMA, "num_kv_heads": 2, "new_decoder_architecture": True},
        {**LLAMA, "num_kv_heads": 2, "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1},
        {**LLAMA, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True},
    ],
    "nemotron": [LLAMA, {**WIDE, "attention_bias": True, "mlp_bias": True}],
    "opt": [
        {**LLAMA, "ffn_dim": 96, "word_embed_proj_dim": 64},
        {**LLAMA, "ffn_dim": 96, "enable_bias": False, "layer_norm_elementwise_affine": False},
        {**LLAMA, "ffn_dim": 96, "do_layer_norm_before": False},
    ],
    "phi": [LLAMA],
    "starcoder2": [LLAMA, {**LLAMA, "use_bias": False, "tie_word_embeddings": False, "sliding_window": 8}],
}  # fmt: skip

# Numbers of tokens that the classes were not written for take other paths through their code.
TOKENS = 16


def cases() -> list[tuple[str, Config]]:
    """Return every shrunken configuration with its family."""
    return [(kind, {"model_type": kind, **config}) for kind, configs in FAMILIES.items() for config in configs]


def case_id(case: tuple[str, Config]) -> str:
    """Name a case by its family and place."""
    kind, config = case
    return f"{kind}-{[{'model_type': kind, **c} for c in FAMILIES[kind]].index(config)}"

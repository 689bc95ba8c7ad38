"""Shrunken configurations of the families that are no plain dense decoders, with the switches that change a layer."""

from __future__ import annotations

from tests.workload.families import LLAMA, WIDE, Config

MOE: Config = {**WIDE, "num_experts_per_tok": 2, "num_experts": 8, "moe_intermediate_size": 40, "pad_token_id": 0}
LOCAL: Config = {**WIDE, "num_experts_per_tok": 2, "num_local_experts": 8, "pad_token_id": 0}
NARROW: Config = {**LLAMA, "num_experts_per_tok": 2, "num_local_experts": 8, "pad_token_id": 0}
SHARED: Config = {**MOE, "shared_expert_intermediate_size": 48}
DEEPSEEK: Config = {
    **{k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}, "q_lora_rank": 32, "kv_lora_rank": 20,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "num_key_value_heads": 4, "n_shared_experts": 2, "moe_intermediate_size": 40, "first_k_dense_replace": 1,
    "n_group": 2, "topk_group": 1, "pad_token_id": 0,
}  # fmt: skip
GROUPED: Config = {
    **WIDE, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 2, "moe_intermediate_size": 40,
    "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "pad_token_id": 0,
}  # fmt: skip
INDEXED: Config = {**DEEPSEEK, "index_n_heads": 3, "index_head_dim": 16, "index_topk": 256}
LINEAR: Config = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
    "linear_conv_kernel_dim": 4, "num_hidden_layers": 4,
}  # fmt: skip
NEMOTRON: Config = {
    **{k: v for k, v in WIDE.items() if k != "num_hidden_layers"}, "layers_block_type": ["mamba", "moe", "attention"],
    "mamba_num_heads": 8, "mamba_head_dim": 20, "n_groups": 2, "ssm_state_size": 12, "conv_kernel": 4, "chunk_size": 16,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 40,
    "moe_shared_expert_intermediate_size": 48, "pad_token_id": 0,
}  # fmt: skip
V4: Config = {
    "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1,
    "head_dim": 16, "qk_rope_head_dim": 4, "q_lora_rank": 32, "o_groups": 2, "o_lora_rank": 24, "hc_mult": 4,
    "compress_ratios": [0, 4, 128], "sliding_window": 256, "index_n_heads": 4, "index_head_dim": 12, "index_topk": 64,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 40,
    "num_hash_layers": 0, "rope_theta": 10000.0, "compress_rope_theta": 10000.0, "pad_token_id": 0,
    "max_position_embeddings": 256,
}  # fmt: skip


LATENT = {
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "q_lora_rank",
    "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "num_key_value_heads", "pad_token_id",
    "max_position_embeddings",
}  # fmt: skip
BAMBA: Config = {
    **LLAMA, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 12, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_chunk_size": 16, "attn_layer_indices": [1], "pad_token_id": 0,
}  # fmt: skip
GRANITE: Config = {
    **{k: v for k, v in BAMBA.items() if k != "attn_layer_indices"}, "num_local_experts": 8, "num_experts_per_tok": 2,
    "shared_intermediate_size": 48, "position_embedding_type": "rope",
}  # fmt: skip


def _without(config: Config, *fields: str) -> Config:
    return {k: v for k, v in config.items() if k not in fields}


SPARSE: dict[str, list[Config]] = {
    "mixtral": [{**LOCAL, "sliding_window": None}, {**NARROW, "sliding_window": 256}],
    "qwen2_moe": [{**_without(SHARED, "head_dim")}, {**_without(SHARED, "head_dim"), "mlp_only_layers": [1]},
                  {**_without(SHARED, "head_dim"), "decoder_sparse_step": 2, "qkv_bias": False}],
    "qwen3_moe": [MOE, {**MOE, "mlp_only_layers": [0], "attention_bias": True, "tie_word_embeddings": True},
                  {**MOE, "decoder_sparse_step": 2}],
    "olmoe": [{**_without(NARROW, "num_local_experts"), "num_experts": 8}],
    "phimoe": [NARROW, {**NARROW, "attention_bias": True, "lm_head_bias": True}],
    "granitemoe": [NARROW, {**NARROW, "attention_bias": True}],
    "gpt_oss": [{**LOCAL, "sliding_window": 256},
                {**LOCAL, "sliding_window": 256, "layer_types": ["full_attention"] * 3}],
    "llama4_text": [{**LOCAL, "intermediate_size_mlp": 56, "num_hidden_layers": 4},
                    {**LOCAL, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 56, "num_hidden_layers": 4,
                     "use_qk_norm": False, "attention_chunk_size": 256},
                    {**LOCAL, "moe_layers": [0], "intermediate_size_mlp": 56, "attention_bias": True}],
    "minimax_m2": [{**LOCAL, "rotary_dim": 8}],
    "glm4_moe": [{**GROUPED, "use_qk_norm": True}, {**GROUPED, "attention_bias": True}],
    "dots1": [{**GROUPED, "sliding_window": None}],
    "ernie4_5_moe": [{**_without(WIDE, "head_dim"), "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 40,
                      "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": -1,
                      "pad_token_id": 0}],
    "hunyuan_v1_moe": [{**WIDE, "num_experts": 8, "moe_topk": 2, "pad_token_id": 0}],
    "dbrx": [{"vocab_size": 96, "d_model": 64, "n_heads": 4, "n_layers": 3, "max_seq_len": 64, "pad_token_id": 0,
              "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
              "ffn_config": {"ffn_hidden_size": 40, "moe_num_experts": 8, "moe_top_k": 2, "hidden_size": 64}}],
    "deepseek_v2": [DEEPSEEK, {**DEEPSEEK, "q_lora_rank": None, "attention_bias": True}],
    "deepseek_v3": [DEEPSEEK, {**DEEPSEEK, "q_lora_rank": None}, {**DEEPSEEK, "attention_bias": True},
                    {**DEEPSEEK, "first_k_dense_replace": 0, "n_shared_experts": 1}],
    "deepseek_v32": [INDEXED],
    "glm4_moe_lite": [DEEPSEEK],
    "glm_moe_dsa": [INDEXED, {**INDEXED, "index_topk_freq": 2, "index_skip_topk_offset": 1}],
    "deepseek_v4": [V4, {**V4, "compress_ratios": [4, 4, 0]}],
    "qwen3_5_text": [{**WIDE, **LINEAR}, {**WIDE, **LINEAR, "full_attention_interval": 2, "attention_bias": True}],
    "qwen3_5_moe_text": [{**SHARED, **LINEAR}],
    "qwen3_next": [{**SHARED, **LINEAR}, {**SHARED, **LINEAR, "mlp_only_layers": [1]}],
    "minimax": [{**LOCAL, "block_size": 16}],
    "kimi_linear": [{**_without(DEEPSEEK, "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "n_group",
                                "topk_group"),
                     "num_experts": 8, "num_experts_per_token": 2, "num_shared_experts": 2, "linear_num_heads": 4,
                     "linear_head_dim": 16, "linear_conv_kernel_dim": 4, "num_hidden_layers": 6,
                     "q_lora_rank": None}],
    "cohere2": [{**LLAMA, "sliding_window": 256, "num_hidden_layers": 5}],
    "olmo3": [{**LLAMA, "sliding_window": 256, "pad_token_id": 0}],
    "exaone4": [{**LLAMA, "sliding_window": 256, "sliding_window_pattern": 4, "num_hidden_layers": 5}],
    "smollm3": [{**LLAMA, "pad_token_id": 0}, {**LLAMA, "attention_bias": True, "mlp_bias": True, "pad_token_id": 0}],
    "seed_oss": [WIDE, {**WIDE, "attention_bias": False, "attention_out_bias": True, "mlp_bias": True}],
    "ernie4_5": [WIDE, {**WIDE, "use_bias": True}],
    "hunyuan_v1_dense": [WIDE, {**WIDE, "attention_bias": True}],
    "arcee": [WIDE, {**WIDE, "attention_bias": True, "mlp_bias": True}],
    "minicpm3": [{k: v for k, v in DEEPSEEK.items() if k in LATENT}],
    "bamba": [BAMBA, {**BAMBA, "mamba_proj_bias": True, "mlp_bias": True, "mamba_conv_bias": False}],
    "granitemoehybrid": [{**GRANITE, "layer_types": ["linear_attention", "full_attention", "linear_attention"]},
                         {**GRANITE, "num_local_experts": 0, "layer_types": ["full_attention"] * 3}],
    "granitemoeshared": [{**NARROW, "shared_intermediate_size": 48}],
    "mimo_v2_flash": [{**WIDE, "v_head_dim": 12, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2,
                       "moe_intermediate_size": 40, "sliding_window": 256, "num_hidden_layers": 6, "topk_group": 1}],
    "nemotron_h": [NEMOTRON, {**NEMOTRON, "moe_latent_size": 24, "mlp_bias": True},
                   {**_without(NEMOTRON, "layers_block_type"), "hybrid_override_pattern": "M-M*-",
                    "num_hidden_layers": 5, "mlp_bias": True, "use_bias": True, "use_conv_bias": False}],
}  # fmt: skip


TOKENS = 128
"""Whole chunks of every scan, and one compressed key of 128 tokens; no window, chunk or choice is narrower."""


def sparse_cases() -> list[tuple[str, Config]]:
    """Return every shrunken configuration with its family."""
    return [(kind, {"model_type": kind, **config}) for kind, configs in SPARSE.items() for config in configs]


def sparse_id(case: tuple[str, Config]) -> str:
    """Name a case by its family and place."""
    kind, config = case
    return f"{kind}-{[{'model_type': kind, **c} for c in SPARSE[kind]].index(config)}"

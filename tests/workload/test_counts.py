"""Counts against published formulas and numbers, and the laws they obey."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.workload import (
    active_params,
    decoder,
    flops_per_token,
    load_architecture,
    packaged_models,
    params,
    params_by_part,
)
from linkscale.workload.counts import (
    attention_flops_per_token,
    matmul_flops_per_token,
    op_params,
    prediction_flops_per_token,
    prediction_params,
)
from linkscale.workload.ops import Attention, Elementwise, Gemm, Norm

GPTS = ["gpt3-175b", "megatron-1.7b", "megatron-145.6b", "megatron-1008b", "megatron-22b", "megatron-530b"]

# Billions, as mosaicml/llm-foundry scripts/train/benchmarking/README.md prints them (2,048 positions).
MPT_BILLIONS = {
    "125m": 0.1253, "350m": 0.356, "760m": 0.7605, "1b": 1.316, "3b": 2.6518, "13b": 12.854, "70b": 64.8624,
}  # fmt: skip


@pytest.mark.parametrize(("size", "billions"), MPT_BILLIONS.items())
def test_mpt_has_the_parameters_that_its_authors_print(size, billions):
    # The source rounds to four decimals, some digits of which it has lost.
    assert params(load_architecture(f"mpt-{size}")) / 1e9 == pytest.approx(billions, abs=6e-5)


# What authors print: billions of parameters, and of those active (the name, the model card or the report).
PUBLISHED = {
    "mixtral-8x7b": (46.7, 12.9), "mixtral-8x22b": (141, 39), "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22), "qwen3-coder-480b-a35b": (480, 35), "deepseek-v2": (236, 21),
    "deepseek-v2-lite": (15.7, 2.4), "deepseek-v3": (671, 37), "deepseek-r1": (671, 37), "kimi-k2": (1026, 32),
    "gpt-oss-20b": (20.9, 3.6), "gpt-oss-120b": (116.8, 5.1), "grok-1": (314, 83), "llama-4-scout": (107.8, 17),
    "llama-4-maverick": (400, 17), "minimax-m2.5": (229, 10), "nemotron-3-nano": (31.6, 3.6),
    "nemotron-3-ultra": (550, 55), "glm-5": (744, 40), "deepseek-v4-flash": (284, 13),
}  # fmt: skip


@pytest.mark.parametrize(("name", "billions"), PUBLISHED.items())
def test_active_parameters_are_those_that_authors_publish(name, billions):
    """Authors round, to as few as two digits, and differ in whether a token's lookup counts: either may agree."""
    arch, (total, active) = load_architecture(name), billions
    assert params(arch) / 1e9 == pytest.approx(total, rel=0.006)
    table = arch.vocab * arch.hidden
    ours = [(active_params(arch) - less) / 1e9 for less in (0, table, 2 * table)]
    rounded = 0.5 if active >= 10 else 0.05
    assert any(abs(value - active) <= rounded * 1.2 for value in ours), ours


def test_prediction_modules_are_what_authors_publish():
    """DeepSeek-V3's files hold 14 B more, table and projection once again among them; MiMo-7B's hold 7.83 B."""
    deepseek, mimo = load_architecture("deepseek-v3"), load_architecture("mimo-7b")
    shared = 2 * deepseek.vocab * deepseek.hidden
    assert (prediction_params(deepseek) + shared) / 1e9 == pytest.approx(14, abs=0.6)
    assert (params(mimo) + prediction_params(mimo)) / 1e9 == pytest.approx(7.83, abs=0.005)
    flops = prediction_flops_per_token(deepseek, 4096) - 2 * deepseek.vocab * deepseek.hidden
    per_layer = flops_per_token(deepseek, 4096) / deepseek.layers
    assert 0.9 < flops / per_layer < 1.3


def test_absorbed_matrices_have_the_same_parameters_and_other_flops():
    """DeepSeek-V2, section 2.1.2: keys and values of all heads become one; a query costs rank instead of head width."""
    arch = load_architecture("deepseek-v3")
    plain, folded = decoder(arch), decoder(arch, absorbed=True)
    for one, other in zip(plain.groups, folded.groups, strict=True):
        assert sum(map(op_params, one.ops)) == sum(map(op_params, other.ops))
        (unfolded,) = (op for op in one.ops if isinstance(op, Attention))
        (absorbed,) = (op for op in other.ops if isinstance(op, Attention))
        assert (unfolded.qk_dim, unfolded.v_dim, unfolded.kv_heads) == (192, 128, 128)
        assert (absorbed.qk_dim, absorbed.v_dim, absorbed.kv_heads) == (576, 512, 1)


@given(st.integers(1, 300), st.integers(1, 64), st.integers(1, 64), st.integers(1, 32))
def test_keys_against_masks_drawn_pair_by_pair(seq, window, selected, ratio):
    """Windows, chunks, chosen and compressed keys, counted on a mask; the continuous form is half a key off a query."""

    def attention(**fields):
        return Attention(heads=1, kv_heads=1, qk_dim=1, v_dim=1, **fields)

    queries = range(seq)
    chunks = sum(q % window + 1 for q in queries) / seq
    chosen = sum(min(q + 1, selected) for q in queries) / seq
    assert attention(selected=selected).keys(seq, causal=True) == pytest.approx(chosen, abs=0.5)
    assert attention(chunk=window).keys(seq - seq % window or window, causal=True) <= window
    if seq % window == 0:
        assert attention(chunk=window).keys(seq, causal=True) == pytest.approx(chunks, abs=0.5)
    near = sum(min(q + 1, window) for q in queries) / seq
    far = sum(min(q // ratio, selected) for q in queries) / seq
    both = attention(window=window, compressed=ratio, selected=selected).keys(seq, causal=True)
    # A compressed key is there only when its tokens are all past: up to one less than the continuous form has.
    assert near + far - 0.5 <= both <= near + far + 1.5


@pytest.mark.parametrize("name", GPTS)
def test_gpt_parameters_are_equation_2_of_narayanan_et_al_2021(name):
    a = load_architecture(name)
    formula = 12 * a.layers * a.hidden**2 + 13 * a.layers * a.hidden + (a.vocab + a.max_positions) * a.hidden
    final_norm = 2 * a.hidden  # left out there
    assert params(a) == formula + final_norm


@pytest.mark.parametrize("name", GPTS)
def test_gpt_flops_are_equation_3_of_narayanan_et_al_2021(name):
    """96*s*l*h^2*(1 + s/6h + V/16lh) per sequence with the layers' forward computed twice."""
    a, s = load_architecture(name), 2048
    formula = 96 * s * a.layers * a.hidden**2 * (1 + s / (6 * a.hidden) + a.vocab / (16 * a.layers * a.hidden))
    layers = flops_per_token(a, s) - 2 * a.vocab * a.hidden
    assert s * (3 * flops_per_token(a, s) + layers) == pytest.approx(formula, rel=1e-12)


def test_llama_405b_trains_at_six_flops_per_parameter_and_attention():
    a = load_architecture("llama-3.1-405b")
    lookup = a.vocab * a.hidden
    norms = (2 * a.layers + 1) * a.hidden
    assert 3 * matmul_flops_per_token(a) == 6 * (params(a) - lookup - norms)
    assert 3 * attention_flops_per_token(a, 8192) == 12 * a.layers * a.hidden * 8192


@pytest.mark.parametrize("name", GPTS)
def test_what_a_gpt_layer_keeps_is_34_h_bytes_per_token(name):
    """Korthikanti et al. 2022, eq. 1, without the scores (5as/h), which only unfused attention keeps."""
    arch = load_architecture(name)
    (group,) = decoder(arch).groups
    assert sum(_kept_bytes(op) for op in group.ops) == 34 * arch.hidden


@pytest.mark.parametrize(("name", "inputs"), [("gpt-neox-20b", 3), ("falcon-7b", 2)])
def test_halves_in_parallel_keep_the_input_of_the_layer_once(name, inputs):
    """The layer's input, and one product's input per norm; besides them the tensors inside the halves."""
    arch = load_architecture(name)
    (group,) = decoder(arch).groups
    qkv = (arch.heads + 2 * arch.kv_heads) * arch.head_dim
    inside = qkv + arch.heads * arch.head_dim + 2 * arch.ffn_hidden
    assert sum(_kept_bytes(op) for op in group.ops) == 2 * (inputs * arch.hidden + inside)


@pytest.mark.parametrize("name", ["llama-3.1-405b", "qwen2.5-72b", "qwen3-32b", "gpt3-175b"])
def test_a_gated_mlp_keeps_gate_up_and_their_product(name):
    """Backward of silu(gate) * up needs both; the down projection needs the product. A plain MLP keeps two tensors."""
    arch = load_architecture(name)
    (group,) = decoder(arch).groups
    tensors = 3 if arch.gated_mlp else 2
    inside = [op for op in group.ops if getattr(op, "name", "") in (arch.activation, "down")]
    assert sum(_kept_bytes(op) for op in inside) == 2 * tensors * arch.ffn_hidden


def _kept_bytes(op):
    match op:
        case Gemm():
            return 2 * op.k * op.saves_input
        case Norm():
            return 2 * op.size * op.copies * op.saves_input
        case Attention():
            return 2 * (op.heads * op.qk_dim + op.kv_heads * (op.qk_dim + op.v_dim))
        case Elementwise():
            return 2 * op.saves + op.mask_bytes
    raise AssertionError(op)


@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b", "falcon-7b", "llama-3.1-405b", "opt-175b", "gpt-neox-20b"])
def test_parts_sum_to_the_whole(name):
    arch = load_architecture(name)
    assert sum(params_by_part(arch).values()) == params(arch) == active_params(arch)
    assert all(value >= 0 for value in params_by_part(arch).values())


# Parameters of the published checkpoints, and, in billions, of model cards and papers where the name rounds freely.
CHECKPOINTS = {
    "llama-3.1-405b": 405_853_388_800, "llama-3.1-70b": 70_553_706_496, "llama-3.1-8b": 8_030_261_248,
    "llama-2-7b": 6_738_415_616, "gpt2": 124_439_808, "qwen2.5-7b": 7_615_616_512,
}  # fmt: skip
CARDS = {
    "llama-2-7b": 6.74, "llama-3.2-1b": 1.23, "llama-3.2-3b": 3.21, "mistral-7b": 7.24, "mpt-7b": 6.65,
    "qwen2.5-7b": 7.61, "qwen2.5-14b": 14.7, "qwen3-14b": 14.8, "nemotron-4-15b": 15.6, "falcon-40b": 41.3,
    "gpt-oss-20b": 20.9, **{f"mpt-{size}": billions for size, billions in MPT_BILLIONS.items()},
}  # fmt: skip
SIZE = re.compile(r"-(\d+(?:\.\d+)?)([mbt])$")
# MiMo's name is its class of size, not its count; the real class checks it.
SIZED = {name: found.groups() for name in packaged_models() if name != "mimo-7b" and (found := SIZE.search(name))}


@pytest.mark.parametrize(("name", "count"), CHECKPOINTS.items())
def test_published_checkpoints(name, count):
    assert params(load_architecture(name)) == count


def test_counts_are_the_sizes_in_the_names():
    assert len(SIZED) > 60
    for name, (number, unit) in SIZED.items():
        nominal = float(number) * {"m": 1e6, "b": 1e9, "t": 1e12}[unit]
        stated, within = (CARDS[name] * 1e9, 0.006) if name in CARDS else (nominal, 0.03)
        assert params(load_architecture(name)) == pytest.approx(stated, rel=within), name


shapes = st.builds(
    lambda heads, group, dim, **fields: {
        "heads": heads * group, "kv_heads": heads, "head_dim": dim, "hidden": heads * group * dim, **fields
    },
    heads=st.integers(1, 8), group=st.integers(1, 4), dim=st.integers(1, 128), layers=st.integers(1, 64),
    vocab=st.integers(1, 10**6), ffn_hidden=st.integers(1, 10**5), gated_mlp=st.booleans(),
    tied_embeddings=st.booleans(), qkv_bias=st.booleans(), mlp_bias=st.booleans(), norm_bias=st.booleans(),
    parallel_residual=st.booleans(), norm_at=st.sampled_from(["input", "output", "both"]),
    qk_norm=st.sampled_from(["none", "head", "full"]),
)  # fmt: skip


@given(shapes, st.integers(1, 10**6))
def test_causal_attention_is_half_of_full(shape, seq_len):
    arch = msgspec.structs.replace(load_architecture("llama-3.1-8b"), **shape)
    full = attention_flops_per_token(arch, seq_len)
    assert attention_flops_per_token(arch, seq_len, causal=True) == pytest.approx(full / 2)


@given(shapes, st.integers(1, 10**5), st.integers(1, 10**5), st.integers(0, 64), st.booleans())
def test_a_window_never_costs_more(shape, seq_len, window, windowed, causal):
    full = msgspec.structs.replace(load_architecture("llama-3.1-8b"), **shape)
    some = msgspec.structs.replace(full, window=window, windowed_layers=min(windowed, full.layers))
    wide = msgspec.structs.replace(full, window=seq_len, windowed_layers=full.layers)
    whole = attention_flops_per_token(full, seq_len, causal=causal)
    assert attention_flops_per_token(some, seq_len, causal=causal) <= whole * (1 + 1e-12)
    assert attention_flops_per_token(wide, seq_len, causal=causal) == pytest.approx(whole)
    assert params(some) == params(full)


@given(st.integers(1, 40), st.integers(1, 60))
def test_causal_windows_count_every_pair_once(seq_len, window):
    """Against counting the pairs of a mask, but for the diagonal's half that the continuous form gives away."""
    arch = msgspec.structs.replace(load_architecture("llama-3.1-8b"), layers=1, window=window, windowed_layers=1)
    pairs = sum(1 for query in range(seq_len) for key in range(seq_len) if 0 <= query - key < window)
    per_pair = 4 * arch.heads * arch.head_dim
    counted = attention_flops_per_token(arch, seq_len, causal=True) * seq_len / per_pair
    assert abs(counted - pairs) <= seq_len / 2


@pytest.mark.parametrize("name", ["deepseek-v3", "nemotron-3-nano", "gpt-oss-20b", "mistral-7b", "llama-3.1-8b"])
def test_models_of_other_depths(name):
    """Fewer layers are the first ones, more are the last ones again; the rest of the model stays."""
    arch = load_architecture(name)
    shallow, deep = arch.with_layers(3), arch.with_layers(arch.layers + 2)
    assert (shallow.layers, deep.layers) == (3, arch.layers + 2)
    assert shallow.order == arch.order[:3]
    assert deep.order[: arch.layers] == arch.order
    assert arch.with_layers(arch.layers) == arch
    assert params(shallow) < params(arch) < params(deep)
    assert sum(group.count for group in decoder(deep).groups) == deep.layers


@given(shapes)
def test_layers_add_up(shape):
    one = msgspec.structs.replace(load_architecture("llama-3.1-8b"), **shape)
    two = msgspec.structs.replace(one, layers=2 * one.layers)
    assert params_by_part(two) == {**params_by_part(one), "layers": 2 * params_by_part(one)["layers"]}
    assert matmul_flops_per_token(two) - matmul_flops_per_token(one) == matmul_flops_per_token(one) - 2 * (
        one.vocab * one.hidden
    )


def _larger(shape, grown):
    """Return an architecture and the same with one number larger; heads grow by whole groups."""
    base = msgspec.structs.replace(load_architecture("llama-3.1-8b"), **shape)
    by = base.kv_heads if grown == "heads" else 1
    return base, msgspec.structs.replace(base, **{grown: getattr(base, grown) + by})


@given(shapes, st.sampled_from(["layers", "hidden", "heads", "head_dim", "ffn_hidden", "vocab"]), st.integers(1, 10**6))
def test_a_larger_model_has_more_of_everything(shape, grown, seq_len):
    base, larger = _larger(shape, grown)
    assert params(larger) > params(base)
    assert matmul_flops_per_token(larger) > matmul_flops_per_token(base)
    for causal in (False, True):
        assert flops_per_token(larger, seq_len, causal=causal) > flops_per_token(base, seq_len, causal=causal)


@given(shapes, st.integers(1, 10**5))
def test_a_longer_sequence_never_costs_a_token_less(shape, seq_len):
    arch = msgspec.structs.replace(load_architecture("llama-3.1-8b"), **shape)
    assert flops_per_token(arch, seq_len) < flops_per_token(arch, seq_len + 1)
    windowed = msgspec.structs.replace(arch, window=100, windowed_layers=arch.layers)
    assert attention_flops_per_token(windowed, seq_len) <= attention_flops_per_token(windowed, seq_len + 1)
    assert attention_flops_per_token(windowed, seq_len) <= attention_flops_per_token(windowed, 100)


@given(shapes)
def test_tying_saves_one_table(shape):
    arch = msgspec.structs.replace(load_architecture("llama-3.1-8b"), **{**shape, "tied_embeddings": False})
    tied = msgspec.structs.replace(arch, tied_embeddings=True)
    assert params(arch) - params(tied) == arch.vocab * arch.hidden
    assert matmul_flops_per_token(arch) == matmul_flops_per_token(tied)
    assert sum(params_by_part(tied).values()) == params(tied)

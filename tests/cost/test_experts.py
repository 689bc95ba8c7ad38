"""Experts, routers, scans and indexes: laws, and second opinions on what they compute and keep."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.cost.experts import experts_cost, router_cost, share
from linkscale.cost.kernels import gemm_s
from linkscale.cost.layer import Slice, ops_cost
from linkscale.cost.params import local_expert_params, local_params
from linkscale.cost.scans import convolution_cost, index_cost, scan_cost
from linkscale.plan.precision import FORMATS
from linkscale.plan.strategy import Choices
from linkscale.workload import decoder, load_architecture, params
from linkscale.workload.counts import op_params
from linkscale.workload.ops import Conv1d, Experts, Gemm, Index, Router, Scan
from tests.cost.test_kernels import B200

ONE = np.ones(1)
TOKENS = np.full(1, 8192.0)


def experts(**fields):
    return Experts(**{"experts": 64, "top_k": 4, "k": 2048, "ffn": 1024, "gated": True, **fields})


def cost(op, tokens=TOKENS, ep=1.0, etp=1.0, **how):
    held = share(op, tokens, ep, etp, "alltoall")
    return experts_cost(op, held, B200, grad_bytes=8.0, passes=1.0, **how)


def seconds(found):
    return float((found.forward_s + found.dgrad_s + found.wgrad_s)[0])


def test_one_expert_for_all_is_two_products():
    op = experts(experts=1, top_k=1)
    rate, tokens = B200.gemm_flops_per_s, TOKENS
    expected = gemm_s(tokens, 2048.0, 2048.0, B200, rate) + gemm_s(tokens, 2048.0, 1024.0, B200, rate)
    assert float(cost(op).product_forward_s[0]) == pytest.approx(float(expected[0]))


def test_products_of_experts_take_at_least_their_flops_and_weights():
    op = experts()
    flops = 2 * float(TOKENS[0]) * op.top_k * op.k * (op.wide + op.ffn)
    assert float(cost(op).product_forward_s[0]) >= flops / B200.gemm_flops_per_s
    few = cost(op, np.full(1, 16.0))
    assert float(few.product_forward_s[0]) >= 2 * op_params(op) / B200.memory_bytes_per_s


@given(st.integers(1, 7), st.integers(1, 6))
def test_more_of_anything_never_costs_less(log_experts, top_k):
    few, many = experts(experts=2**log_experts * 8, top_k=top_k), experts(experts=2**log_experts * 16, top_k=top_k)
    assert seconds(cost(few)) <= seconds(cost(many)) * (1 + 1e-9)
    more = experts(experts=2**log_experts * 8, top_k=top_k + 1)
    assert seconds(cost(few)) <= seconds(cost(more)) * (1 + 1e-9)
    assert seconds(cost(few)) <= seconds(cost(few, TOKENS * 2)) * (1 + 1e-9)
    padded = experts(experts=2**log_experts * 8, top_k=top_k, capacity=1.25)
    assert float(cost(padded).saved_bytes[0]) == pytest.approx(1.25 * float(cost(few).saved_bytes[0]))


def test_what_experts_keep_is_what_autograd_keeps():
    """A reference in torch: sorted tokens, both sides of the activation, and the product that goes down."""
    torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")
    op, tokens = experts(experts=1, top_k=1, k=64, ffn=96), 32
    up = torch.nn.Parameter(torch.randn(op.wide, op.k, dtype=torch.bfloat16))
    down = torch.nn.Parameter(torch.randn(op.k, op.ffn, dtype=torch.bfloat16))
    kept: dict[int, int] = {}

    def pack(tensor):
        if tensor.shape[0] == tokens:  # weights are kept anyway
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        x = torch.randn(tokens, op.k, dtype=torch.bfloat16, requires_grad=True)
        gate, value = torch.nn.functional.linear(x, up).chunk(2, dim=-1)
        activated = torch.nn.functional.silu(gate)
        torch.nn.functional.linear(activated * value, down)
    silu = 2 * tokens * op.ffn  # written out; a fused kernel computes it again
    assert sum(kept.values()) - silu == float(cost(op, np.full(1, float(tokens))).saved_bytes[0])


def test_routers_search_and_product():
    op = Router(experts=256, k=7168, top_k=8)
    one, two = router_cost(op, TOKENS, B200, 8.0), router_cost(op, TOKENS * 2, B200, 8.0)
    assert seconds(one) < seconds(two)
    shared = router_cost(Router(experts=256, k=7168, top_k=8, saves_input=False), TOKENS, B200, 8.0)
    assert float((one.saved_bytes - shared.saved_bytes)[0]) == 2 * 7168 * 8192


@given(st.sampled_from(["linear", "delta", "ssd"]), st.integers(1, 64), st.sampled_from([64, 128, 256]))
def test_scans_are_linear_in_tokens(kind, heads, dim):
    op = Scan(kind=kind, heads=heads, groups=heads, key_dim=dim, value_dim=dim, chunk=64)
    one, two = scan_cost(op, TOKENS, ONE, B200), scan_cost(op, 2 * TOKENS, ONE, B200)
    assert float(two.forward_s[0]) == pytest.approx(2 * float(one.forward_s[0]))
    assert float(two.saved_bytes[0]) == pytest.approx(2 * float(one.saved_bytes[0]))
    halved = scan_cost(op, TOKENS, 2 * ONE, B200)
    assert float(halved.forward_s[0]) == pytest.approx(float(one.forward_s[0]) / 2)


def test_products_of_a_state_space_scan_against_the_scan_written_out():
    """The chunked form of Dao and Gu 2024 (listing 1) in einsums, its multiply-adds counted from their shapes."""
    heads, groups, state, dim, chunk, chunks = 6, 2, 16, 24, 8, 5
    tokens = chunk * chunks
    scores = groups * chunks * chunk * chunk * state  # C B^T, once per group
    inside = heads * chunks * chunk * chunk * dim  # scores times values
    states = heads * chunks * chunk * state * dim  # B^T x into the states
    read = heads * chunks * chunk * state * dim  # C times the states
    op = Scan(kind="ssd", heads=heads, groups=groups, key_dim=state, value_dim=dim, chunk=chunk)
    assert op.products() * tokens == scores + inside + states + read


def test_a_convolution_is_a_pass_over_memory():
    found = convolution_cost(Conv1d(name="c", channels=1000, kernel=4), TOKENS, ONE, B200)
    assert float(found.forward_s[0]) == pytest.approx(4 * 1000 * 8192 / B200.memory_bytes_per_s)


def test_an_index_grows_with_the_square_and_attention_behind_it_does_not():
    op = Index(heads=64, dim=128, selected=2048)
    short, long = (float(index_cost(op, 1.0, s, s, B200).forward_s) for s in (32768.0, 65536.0))
    assert long == pytest.approx(4 * short)


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss-20b", "nemotron-3-nano", "qwen3.5-27b", "deepseek-v4-flash"])
def test_ranks_of_a_tensor_parallel_group_hold_the_whole_model(name):
    arch = load_architecture(name)
    model = decoder(arch)
    ops = [*model.embeddings, *model.final, model.head]

    def layer(group, ranks):
        return float((local_params(group.ops, ranks, "fsdp2") + local_expert_params(group.ops, ONE, ranks))[0])

    whole = float(local_params(ops, ONE, "fsdp2")[0]) + sum(g.count * layer(g, ONE) for g in model.groups)
    assert whole == params(arch)
    for group in model.groups:
        assert layer(group, ONE) / 8 <= layer(group, 8 * ONE) < layer(group, ONE)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "glm-5.2", "minimax-m2.5", "qwen3-vl-30b-a3b"])
def test_layers_gather_once_for_each_half(name):
    """One exchange before attention and one before an MLP; routed experts have exchanges of their own."""
    part = Slice(tp=2 * ONE, micro_batch=ONE, queries=np.full(1, 4096.0), seq=4096.0, choices=Choices(stack="megatron"))
    for group in decoder(load_architecture(name)).groups:
        mlps = [op for op in group.ops if isinstance(op, Gemm) and op.name in ("up", "shared up")]
        assert len(ops_cost(group.ops, part, B200).column_dgrad_s) == 1 + len(mlps)


@given(st.sampled_from((1, 2, 8, 32)), st.sampled_from((1, 2, 4)))
def test_ranks_share_experts_and_their_work(ep, etp):
    """No product and no parameter is lost or done twice over the ranks that share experts."""
    op, tokens = experts(capacity=1.0), TOKENS
    ranks = ep * etp
    held = share(op, tokens / ranks, float(ep), float(etp), "alltoall")
    work = ranks * held.copies * (op.k * (op.wide + op.ffn) / etp)
    assert float(work[0]) == pytest.approx(8192 * op.top_k * op.k * (op.wide + op.ffn))
    assert ranks * float(local_expert_params([op], ep * ONE, etp * ONE)[0]) == op_params(op)


def test_the_fullest_rank_holds_back_the_others_unless_tokens_are_dropped():
    free, capped = (
        share(experts(), TOKENS, 8.0, 1.0, "deepep"),
        share(experts(capacity=1.0), TOKENS, 8.0, 1.0, "deepep"),
    )
    assert 1.0 < float((free.copies / capped.copies)[0]) < 1.05


def test_one_by_one_is_never_quicker_than_grouped():
    for tokens in (64.0, 8192.0, 131072.0):
        grouped, apart = (cost(experts(), np.full(1, tokens), kernels=way) for way in ("grouped", "sequential"))
        assert seconds(apart) > seconds(grouped)
        assert float(np.max(apart.forward_ops)) > float(np.max(grouped.forward_ops))


def test_a_loop_over_experts_is_launched_for_each_and_a_fused_kernel_once():
    """Per expert a kernel for each product, and in narrow formats a cast of what enters it."""
    wide = replace(B200, expert_launch_s=1e-5)
    narrow = replace(wide, operand=FORMATS["mxfp8"])
    held = share(experts(), TOKENS, 8.0, 1.0, "alltoall")
    for dev, forward, backward in ((wide, 2, 4), (narrow, 4, 6)):
        found = experts_cost(experts(), held, dev, grad_bytes=8.0, passes=1.0, kernels="streams")
        assert float(np.max(found.launch_forward_s)) == pytest.approx(8 * forward * 1e-5)
        assert float(np.max(found.launch_backward_s)) == pytest.approx(8 * backward * 1e-5)
        fused = experts_cost(experts(), held, dev, grad_bytes=8.0, passes=1.0, kernels="fused")
        assert fused.launch_forward_s == 0.0
        assert seconds(fused) < seconds(found)
        assert float(np.max(fused.forward_ops)) < float(np.max(found.forward_ops))


def test_further_passes_over_copies_take_their_bytes():
    op, dev = experts(), replace(B200, expert_passes=5.0)
    held = share(op, TOKENS, 1.0, 1.0, "alltoall")
    more = experts_cost(op, held, dev, grad_bytes=8.0, passes=1.0).forward_s - cost(op).forward_s
    assert float(more[0]) == pytest.approx(5 * 4 * 8192 * 2 * 2048 / B200.memory_bytes_per_s)

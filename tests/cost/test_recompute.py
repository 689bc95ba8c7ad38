"""Recomputation module by module: what a layer keeps against counts by hand, and laws over all sets of modules."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.cost.layer import OpsCost, Slice, ops_cost
from linkscale.cost.memory import checkpoint_bytes, layer_activation_bytes
from linkscale.plan.strategy import MODULES, Choices, Strategy
from linkscale.workload import decoder, load_architecture
from linkscale.workload.counts import attention_flops_per_token, flops_per_token, modules_flops_per_token
from linkscale.workload.ops import module_of
from tests.cost.test_kernels import B200

MODELS = ["llama-3.1-405b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"]
TOKENS = 4096.0


def layer(name: str, modules: str) -> tuple[OpsCost, float, Slice, int]:
    """Return the cost of a model's last kind of layer on one GPU, and the bytes that it keeps."""
    arch = load_architecture(name)
    recompute = "selective" if modules else "none"
    choices = Choices(recompute=recompute, recompute_modules=modules or "core_attn", sequence_parallel=False)
    part = Slice(np.ones(1), np.ones(1), np.full(1, TOKENS), TOKENS, choices)
    cost = ops_cost(decoder(arch).groups[-1].ops, part, B200)
    return cost, float(layer_activation_bytes(cost, part, arch.hidden)[0]), part, arch.hidden


def dropped(name: str, modules: str) -> float:
    return (layer(name, "")[1] - layer(name, modules)[1]) / TOKENS


def test_norms_drop_what_they_return():
    assert dropped("llama-3.1-405b", "layernorm") == 2 * 2 * 16384


def test_unfolded_queries_keys_and_values_are_not_kept():
    """DeepSeek-V3: 128 heads of 192 and 192 and 128 features; the normed latents of 1,536 and 512 as well."""
    assert dropped("deepseek-v3", "mla_up_proj") == 2 * (128 * (192 + 192 + 128) + 1536 + 512)


def test_what_experts_activate_is_not_kept():
    """Eight choices of 2,048 features, the fullest of one rank being all there are."""
    assert dropped("deepseek-v3", "moe_act") == 2 * 8 * 2048


def test_a_dense_layers_mlp_keeps_its_input_alone():
    """Llama-3.1-405B: the two products' 53,248 features each, and the activated ones."""
    assert dropped("llama-3.1-405b", "mlp") == 2 * 3 * 53248


def test_shared_experts_are_inside_the_mixture():
    assert 0 < dropped("deepseek-v3", "shared_experts") == pytest.approx(2 * 3 * 2048)
    assert dropped("deepseek-v3", "moe") == dropped("deepseek-v3", "moe,shared_experts")


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(MODELS), st.sets(st.sampled_from(MODULES), min_size=1), st.sampled_from(MODULES))
def test_more_modules_keep_less_and_repeat_more(name, few, another):
    some, more = (layer(name, ",".join(sorted(names))) for names in (few, few | {another}))
    assert more[1] <= some[1] * (1 + 1e-9)
    assert np.all(more[0].repeated_s >= np.asarray(some[0].repeated_s) * (1 - 1e-9))


@pytest.mark.parametrize("name", MODELS)
def test_all_modules_together_lie_between_none_and_the_whole_layer(name):
    cost, kept, part, hidden = layer(name, ",".join(MODULES))
    assert float(checkpoint_bytes(part, hidden)[0]) < kept < layer(name, "")[1]
    assert 0.0 < float(np.max(cost.repeated_s)) <= float(np.max(cost.forward_s))


@pytest.mark.parametrize("name", MODELS)
def test_every_module_counts_its_own_flops(name):
    arch = load_architecture(name)
    apart = [modules_flops_per_token(arch, 4096, {module}) for module in ("core_attn", "mlp", "moe", "mla_up_proj")]
    every = modules_flops_per_token(arch, 4096, set(MODULES))
    assert sum(apart) == pytest.approx(every)
    assert apart[0] == attention_flops_per_token(arch, 4096) <= every < flops_per_token(arch, 4096)


def test_every_module_is_that_of_some_operation():
    named = {module_of(op) for m in MODELS for group in decoder(load_architecture(m)).groups for op in group.ops}
    assert named - {""} == set(MODULES) - {"moe_act"}  # the activation is a part of the experts


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"recompute_modules": "moe_act,attn"}, "recompute_modules names 'attn'; choose from core_attn, layernorm"),
        ({"recompute_modules": ""}, "recompute_modules names ''"),
        ({"recompute_modules": "moe_act", "recompute": "full"}, "belongs to recompute selective of the megatron stack"),
        ({"recompute_modules": "moe_act", "stack": "fsdp2"}, "belongs to recompute selective of the megatron stack"),
    ],
)
def test_modules_that_mean_nothing_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        Strategy(**fields)


def test_every_pair_of_modules_is_a_list():
    for pair in combinations(MODULES, 2):
        assert Strategy(recompute_modules=",".join(pair)).recompute_modules == ",".join(pair)

"""Parameters against the real classes, exactly: every family, its switches, every packaged and sample model."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.workload import from_config, load_architecture, packaged_config, packaged_models, params
from linkscale.workload.counts import op_params, tower_params
from linkscale.workload.fields import Fields
from linkscale.workload.registry import TOWERS
from tests.workload.classes import real_params
from tests.workload.families import LLAMA, case_id, cases
from tests.workload.sparse_families import sparse_cases, sparse_id

SAMPLES = Path(__file__).parents[1] / "data" / "models"
CONFIGS = sorted(SAMPLES.glob("*.config.json"))

# transformers' MPT has neither learned positions nor biases, and it has no Grok-1; test_counts holds these to
# published numbers.
OTHER_CLASS = {f"mpt-{size}" for size in ("125m", "350m", "760m", "1b", "3b", "13b", "70b")} | {"grok-1"}
CHECKED = [name for name in packaged_models() if name not in OTHER_CLASS]
QUICK = {"llama-3.1-405b", "gpt2", "falcon-7b", *random.Random(1).sample(CHECKED, 9)}
QUICK_FILES = re.compile("V4-Flash|Nemotron-3-Nano|gpt-oss-20b|Mixtral|Kimi-K2.5|Qwen3.5|Llama-4|MiMo|GLM-5.2|gpt2-xl")


def _marked(name: str) -> object:
    return name if name in QUICK else pytest.param(name, marks=pytest.mark.evidence)


def _marked_file(path: Path) -> object:
    return path if QUICK_FILES.search(path.name) else pytest.param(path, marks=pytest.mark.evidence)


def _equals_the_class(found, data):
    """Compare the decoder alone, and with its tower where it has one."""
    tied = data.get("tie_word_embeddings")
    text = {**data.get("text_config", data), **({} if tied is None else {"tie_word_embeddings": tied})}
    assert params(found) == real_params(text)
    if found.towers:
        assert params(found) + sum(tower_params(found).values()) == real_params(data, tower=True)


@pytest.mark.parametrize("case", cases(), ids=case_id)
def test_every_family_and_switch(case):
    _, data = case
    assert params(from_config(data, "shrunken")) == real_params(data)


@pytest.mark.parametrize("name", [_marked(name) for name in CHECKED])
def test_packaged_models(name):
    _equals_the_class(load_architecture(name), packaged_config(name))


@pytest.mark.parametrize("case", sparse_cases(), ids=sparse_id)
def test_every_sparse_family_and_switch(case):
    _, data = case
    assert params(from_config(data, "shrunken")) == real_params(data)


@pytest.mark.parametrize("path", [_marked_file(path) for path in CONFIGS], ids=lambda path: path.name)
def test_published_configurations(path):
    _equals_the_class(load_architecture(str(path)), json.loads(path.read_text()))


def test_files_that_leave_out_what_their_class_knows():
    """Gemma 3's nested text model states neither heads nor vocabulary; its tower has no head."""
    text = {"model_type": "gemma3_text", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
            "sliding_window": 1024}  # fmt: skip
    vision = {"model_type": "siglip_vision_model", "hidden_size": 48, "image_size": 28, "intermediate_size": 80,
              "num_attention_heads": 4, "num_hidden_layers": 2, "patch_size": 14, "vision_use_head": False}  # fmt: skip
    data = {"model_type": "gemma3", "mm_tokens_per_image": 4, "text_config": text, "vision_config": vision}
    found = from_config(data, "gemma")
    assert found.vocab == 262208
    assert params(found) + sum(tower_params(found).values()) == real_params(data, tower=True)


@pytest.mark.parametrize("kind", TOWERS)
def test_every_tower(kind):
    """The class's own default tower, whose fields are all stated, beside a small text model."""
    config = transformers_config(kind)
    vision = Fields(config["vision_config"], "vision_config")
    counted = sum(op_params(op) * g.count for g in TOWERS[kind](vision, config["text_hidden"]).groups for op in g.ops)
    assert counted == config["tower_params"]


def transformers_config(kind):
    """Return what the real class says of its default tower."""
    from tests.workload.classes import torch, transformers

    config = transformers.AutoConfig.for_model(kind)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    beside = [p for n, p in model.named_parameters() if "language_model" not in n and "lm_head" not in n]
    return {
        "vision_config": config.vision_config.to_dict(), "text_hidden": config.text_config.hidden_size,
        "tower_params": sum(p.numel() for p in beside),
    }  # fmt: skip


def test_a_packaged_model_is_what_its_authors_publish():
    pairs = {"llama-3.1-405b": "meta-llama__Meta-Llama-3.1-405B", "qwen2.5-7b": "Qwen__Qwen2.5-7B",
             "qwen2.5-32b": "Qwen__Qwen2.5-32B", "qwen3-1.7b": "Qwen__Qwen3-1.7B", "gpt2-xl": "gpt2-xl",
             "deepseek-v3": "deepseek-ai__DeepSeek-V3", "kimi-k2.5": "moonshotai__Kimi-K2.5",
             "gpt-oss-120b": "openai__gpt-oss-120b", "qwen3.5-27b": "Qwen__Qwen3.5-27B", "glm-5.2": "zai-org__GLM-5.2",
             "nemotron-3-ultra": "nvidia__NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
             "minimax-m2.5": "MiniMaxAI__MiniMax-M2.5"}  # fmt: skip
    for name, file in pairs.items():
        published = load_architecture(str(SAMPLES / f"{file}.config.json"))
        packaged = load_architecture(name)
        different = [f for f in published.__struct_fields__ if getattr(published, f) != getattr(packaged, f)]
        assert set(different) <= {"name", "source"}, (name, different)


@given(
    heads=st.sampled_from([2, 4, 6]), group=st.sampled_from([1, 2]), layers=st.integers(1, 4),
    ffn=st.integers(1, 99), vocab=st.integers(1, 99), tied=st.booleans(), bias=st.booleans(),
    kind=st.sampled_from(["llama", "qwen2", "nemotron", "olmo", "cohere"]),
)  # fmt: skip
def test_any_sizes(heads, group, layers, ffn, vocab, tied, bias, kind):
    data = {
        **LLAMA, "model_type": kind, "hidden_size": 8 * heads, "num_attention_heads": heads,
        "num_key_value_heads": heads // group, "num_hidden_layers": layers, "intermediate_size": ffn,
        "vocab_size": vocab, "tie_word_embeddings": tied, "attention_bias": bias, "pad_token_id": None,
    }  # fmt: skip
    assert params(from_config(data, "any")) == real_params(data)

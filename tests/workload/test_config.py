"""Names, paths and hostile configurations: what is meant is read, what is not understood gets one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscale.base.errors import InputError
from linkscale.workload import from_config, load_architecture, packaged_config, packaged_models
from linkscale.workload.architecture import Architecture
from tests.workload.families import LLAMA, cases
from tests.workload.sparse_families import sparse_cases

SAMPLES = Path(__file__).parents[1] / "data" / "models"
DATA = {"model_type": "llama", **LLAMA}


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        load_architecture(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    return str(caught.value)


@pytest.mark.parametrize(("text", "name"), [
    ("llama-3.1-405b", "llama-3.1-405b"), ("Llama-3.1-405B", "llama-3.1-405b"),
    ("meta-llama/Llama-3.1-405B", "llama-3.1-405b"), ("meta-llama/Meta-Llama-3.1-405B-Instruct", "llama-3.1-405b"),
    ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"), ("gpt3-175b", "gpt3-175b"), ("GPT-3", "gpt3-175b"),
    ("gpt-3-6.7b", "gpt3-6.7b"), ("openai-community/gpt2-xl", "gpt2-xl"), ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"),
    ("EleutherAI/gpt-neox-20b", "gpt-neox-20b"), ("tiiuae/falcon-180B-chat", "falcon-180b"),
    ("nvidia/Nemotron-4-340B-Base", "nemotron-4-340b"), ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
    ("mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b"), ("deepseek-ai/DeepSeek-V3-Base", "deepseek-v3"),
    ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"), ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano"),
    ("xai-org/grok-1", "grok-1"), ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
])  # fmt: skip
def test_a_packaged_model_has_many_spellings(text, name):
    assert load_architecture(text).name == name


def test_every_packaged_model_is_readable_and_says_where_it_is_from():
    for name in packaged_models():
        arch = load_architecture(name)
        assert arch.name == name
        assert arch.source == packaged_config(name)["_source"]
        assert any(word in arch.source for word in ("config.json", "arXiv", "github.com", "NVIDIA NeMo")), arch.source


def test_nearest_name():
    assert "did you mean 'llama-3.1-405b'?" in refused("lama-3.1-405b")
    assert "did you mean 'falcon-180b'?" in refused("falcon-160b")
    assert "unknown model" in refused("someone/gpt2")
    assert "unknown model" in refused("x" * 5000)
    assert "unknown model ''" in refused("")


def test_what_exists_and_looks_like_a_path_is_read(tmp_path, monkeypatch):
    """A bare name is the packaged model even beside a folder of that name; ./name and name/ are the folder."""
    folder = tmp_path / "gpt2"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(DATA))
    monkeypatch.chdir(tmp_path)
    assert load_architecture("gpt2").model_type == "gpt2"
    for text in ("./gpt2", "gpt2/", "gpt2/config.json", str(folder)):
        found = load_architecture(text)
        assert (found.model_type, found.name) == ("llama", "gpt2")
    (folder / "tiny.json").write_text(json.dumps(DATA))
    assert load_architecture("gpt2/tiny.json").name == "tiny"


def test_a_field_that_is_missing_is_named_with_the_file(tmp_path):
    path = tmp_path / "config.json"
    for field in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        path.write_text(json.dumps({k: v for k, v in DATA.items() if k != field}))
        assert refused(str(path)) == f"{path}: {field} is missing; every llama configuration states it"


@pytest.mark.parametrize(("field", "value", "said"), [
    ("num_hidden_layers", 1e300, "num_hidden_layers = 1e+300; it must be a whole number from 1 to 2147483647"),
    ("num_hidden_layers", 10**400, "num_hidden_layers = a number of 1329 bits; it must be a whole number"),
    ("num_hidden_layers", -3, "num_hidden_layers = -3; it must be"),
    ("num_hidden_layers", 0, "num_hidden_layers = 0; it must be"),
    ("hidden_size", 64.5, "hidden_size = 64.5; it must be"),
    ("hidden_size", True, "hidden_size = True; it must be"),
    ("hidden_size", "64", "hidden_size = '64'; it must be"),
    ("hidden_size", [64], "hidden_size = a list; it must be"),
    ("hidden_size", float("nan"), "hidden_size = nan; it must be"),
    ("vocab_size", float("inf"), "vocab_size = inf; it must be"),
    ("hidden_size", 66, "hidden_size = 66 does not divide by 4 heads; state head_dim"),
    ("num_key_value_heads", 3, "heads = 4 does not divide by kv_heads = 3"),
    ("attention_bias", "yes", "attention_bias = 'yes'; it must be true or false"),
    ("attention_dropout", 2, "attention_dropout = 2; it must be a number from 0 to 1"),
    ("hidden_act", 3, "hidden_act = 3; it must be a name"),
    ("model_type", "lama", "model_type 'lama' is not understood yet; did you mean 'llama'?"),
    ("model_type", 7, "model_type is missing"),
    ("num_local_experts", 8, "num_local_experts (a mixture of experts) is not understood in a llama configuration"),
    ("vision_config", {"depth": 2}, "vision_config (a tower beside the text) is not understood in a llama"),
    ("mamba_d_state", 16, "mamba_d_state (a state-space layer) is not understood in a llama configuration"),
    ("is_encoder_decoder", True, "is_encoder_decoder (an encoder) is not understood"),
    ("model_type", "yi_34b", "model_type 'yi_34b' is not understood yet; 'llama' reads its fields: set model_type"),
])  # fmt: skip
def test_wrong_values_get_one_line(tmp_path, field, value, said):
    path = tmp_path / "model.json"
    path.write_text(json.dumps({**DATA, field: value}))
    assert said in refused(str(path))


def test_whole_floats_are_whole():
    assert from_config({**DATA, "hidden_size": 64.0}, "x").hidden == 64


@pytest.mark.parametrize(("kind", "left_out", "said"), [
    ("mistral", "sliding_window", "sliding_window is missing; state its tokens, or null for none"),
    ("mistral", "num_key_value_heads", "num_key_value_heads is missing"),
    ("qwen3", "head_dim", "head_dim is missing"),
    ("deepseek_v3", "q_lora_rank", "q_lora_rank is missing; state its features, or null"),
    ("gpt_oss", "sliding_window", "sliding_window is missing; state its tokens, or null for none"),
    ("deepseek_v4", "compress_ratios", "layer_types is missing; state the kind of every layer, or compress_ratios"),
    ("nemotron_h", "layers_block_type", "layers_block_type is missing; state the kind of every layer"),
    ("gpt2", "n_positions", "n_positions is missing"),
    ("mpt", "no_bias", "no_bias is missing; state true or false"),
    ("mpt", "attn_config", "attn_config.alibi is missing; state true or false"),
])  # fmt: skip
def test_what_classes_of_one_family_disagree_about_is_not_guessed(kind, left_out, said):
    data = next(config for family, config in [*cases(), *sparse_cases()] if family == kind)
    with pytest.raises(InputError, match=said):
        from_config({k: v for k, v in data.items() if k != left_out}, "x")


@pytest.mark.parametrize(("layer_types", "said"), [
    (["full_attention"], "layer_types lists 1 layers, but the model has 3"),
    (["linear_attention"] * 3, "layer_types holds 'linear_attention', which is not understood yet"),
    ("full_attention", "layer_types must be a list of names"),
])  # fmt: skip
def test_layer_types(layer_types, said):
    data = {**DATA, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 4}
    with pytest.raises(InputError, match=said):
        from_config({**data, "layer_types": layer_types}, "x")


def test_fields_that_cost_nothing_are_not_in_the_way():
    harmless = {
        "router_aux_loss_coef": 0.1, "moe_router_dtype": "float32", "ep_size": 1, "chunk_size_feed_forward": 0,
        "add_cross_attention": False, "num_experts": 0, "layer_types": ["full_attention"] * 3,
    }  # fmt: skip
    assert from_config({**DATA, **harmless}, "x") == from_config(DATA, "x")


@pytest.mark.parametrize(("sample", "change", "said"), [
    ("deepseek-ai__DeepSeek-V3", {"index_topk": 64}, "index_topk (sparse attention by an index) is not understood in a "
     "deepseek_v3 configuration"),
    ("mistralai__Mixtral-8x7B-v0.1", {"kv_lora_rank": 512}, "kv_lora_rank (latent attention) is not understood"),
    ("deepseek-ai__DeepSeek-V3", {"n_group": 7}, "n_group = 7 does not divide 256 experts"),
    ("deepseek-ai__DeepSeek-V3", {"moe_layer_freq": 2}, "moe_layer_freq beyond 1 is not understood"),
    ("deepseek-ai__DeepSeek-V3", {"model_type": "ling_ultra"}, "reads its fields: set model_type to it if the layers"),
    ("Qwen__Qwen3-30B-A3B", {"num_experts_per_tok": 200}, "num_experts_per_tok = 200, but there are 128 experts"),
    ("openai__gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types lists 1 layers, but the model has 24"),
    ("Qwen__Qwen3.5-27B", {"text_config": None}, "text_config is missing; every qwen3_5 configuration nests"),
    ("Qwen__Qwen3.5-27B", {"audio_config": {"depth": 1}}, "audio_config (a tower beside the text) is not understood"),
    ("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"hybrid_override_pattern": "MX"}, "holds 'X', which is not"),
    ("deepseek-ai__DeepSeek-V4-Flash", {"compress_ratios": [8] * 44}, "compress_ratios holds 8, which is not"),
])  # fmt: skip
def test_what_is_not_understood_of_a_sparse_model_is_named(tmp_path, sample, change, said):
    data = {**json.loads((SAMPLES / f"{sample}.config.json").read_text()), **change}
    path = tmp_path / "model.json"
    path.write_text(json.dumps(data))
    assert said in refused(str(path))


def test_a_tower_that_is_left_out_is_said():
    found = load_architecture(str(SAMPLES / "meta-llama__Llama-4-Scout-17B-16E-Instruct.config.json"))
    assert found.towers == ()
    assert found.notes == ("vision_config is left out: the text model alone",)


def test_files_that_are_no_configuration(tmp_path):
    def written(text: str | bytes) -> str:
        path = tmp_path / "model.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    assert ":1:2: not valid JSON" in refused(written("{"))
    assert "expected the fields of a model configuration, found a list" in refused(written("[1]"))
    assert "model_type is missing" in refused(written("{}"))
    assert "not UTF-8" in refused(written(b"\xff\xfe\x00"))
    assert "nested too deeply" in refused(written("[" * 10_000 + "]" * 10_000))
    assert "model.json" in refused(written('{"model_type": "llama", "hidden_size": ' + "9" * 10_000 + "}"))
    assert "no such file" in refused(str(tmp_path / "none.json"))
    (tmp_path / "empty").mkdir()
    assert "config.json: no such file" in refused(str(tmp_path / "empty"))
    assert "unknown model" in refused("no\0name")
    assert "n_positions is missing; every gpt2" in refused(str(SAMPLES / "gpt2.llm-analysis.json"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from([*cases(), *sparse_cases()]), st.data())
def test_any_damage_is_either_read_or_refused(case, data):
    _, config = case
    field = data.draw(st.sampled_from(sorted(config)))
    damaged = {**config, field: data.draw(json_values)}
    try:
        found = from_config(damaged, "damaged")
    except InputError as error:
        message = str(error)
    else:
        message = ""
        assert isinstance(found, Architecture)
        assert found.layers >= 1
    assert "\n" not in message

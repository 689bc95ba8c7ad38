"""Models that come with the package: ``data/models/NAME.json`` holds the fields that decide a shape, and a source."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_FOLDER = files("linkscale.workload").joinpath("data/models")

# Owners whose repositories the packaged models are; "someone/gpt2" may be anything.
_OWNERS = {
    "allenai", "deepseek-ai", "eleutherai", "facebook", "gpt2", "meta-llama", "minimaxai", "mistralai", "moonshotai",
    "mosaicml", "nvidia", "openai", "openai-community", "qwen", "tiiuae", "tinyllama", "xai-org", "xiaomimimo",
    "zai-org",
}  # fmt: skip

# Versions of a model that share its shape.
_FINISHES = ("-hf", "-fp8", "-bf16", "-instruct", "-base", "-chat")

# Other spellings, of a whole name or (ending in "-") of its beginning.
_ALIASES = {
    "meta-llama-": "llama-", "llama2-": "llama-2-", "llama3-": "llama-3-", "llama3.1-": "llama-3.1-",
    "llama3.2-": "llama-3.2-", "llama3.3-": "llama-3.3-", "gpt-2": "gpt2", "gpt2-small": "gpt2", "gpt-2-": "gpt2-",
    "gpt-3-": "gpt3-", "gpt3": "gpt3-175b", "gpt-3": "gpt3-175b", "gpt-neox": "gpt-neox-20b",
    "nemotron4-": "nemotron-4-", "qwen-2.5-": "qwen2.5-", "qwen-3-": "qwen3-", "mistral-7b-v0.1": "mistral-7b",
    "mixtral-8x7b-v0.1": "mixtral-8x7b", "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "mixtral-8x7b-instruct-v0.1": "mixtral-8x7b", "mixtral-8x22b-instruct-v0.1": "mixtral-8x22b",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "llama-4-maverick-17b-128e": "llama-4-maverick", "llama4-": "llama-4-", "deepseek-v3-0324": "deepseek-v3",
    "deepseekv2": "deepseek-v2", "deepseekv3": "deepseek-v3", "grok1": "grok-1", "grok-1-314b": "grok-1",
    "nvidia-nemotron-3-nano-30b-a3b": "nemotron-3-nano", "nvidia-nemotron-3-ultra-550b-a55b": "nemotron-3-ultra",
    "tinyllama-1.1b-chat-v1.0": "tinyllama-1.1b", "megatron-gpt-": "megatron-", "turing-nlg-530b": "mt-nlg-530b",
}  # fmt: skip


@cache
def packaged_models() -> tuple[str, ...]:
    """Return the names of the packaged models."""
    return tuple(sorted(p.name.removesuffix(".json") for p in _FOLDER.iterdir() if p.name.endswith(".json")))


def packaged_name(text: str) -> str | None:
    """Return the packaged model that a name means, or None: any case, with or without its known owner.

    >>> packaged_name("meta-llama/Llama-3.1-405B-Instruct"), packaged_name("GPT-3"), packaged_name("me/gpt2")
    ('llama-3.1-405b', 'gpt3-175b', None)
    """
    owner, slash, name = text.strip().lower().rpartition("/")
    if slash and owner not in _OWNERS:
        return None
    name = name.replace("_", "-")
    for finish in _FINISHES:
        name = name.removesuffix(finish)
    return next((n for n in (name, _ours(name)) if n in packaged_models()), None)


def _ours(name: str) -> str:
    for known, ours in _ALIASES.items():
        if name == known:
            return ours
        if known.endswith("-") and name.startswith(known):
            return ours + name[len(known) :]
    return name


def packaged_config(name: str) -> dict[str, Any]:
    """Return the packaged fields of a model's configuration, with its source as ``_source``."""
    data: dict[str, Any] = msgspec.json.decode(_FOLDER.joinpath(f"{name}.json").read_bytes())
    return data

"""The page of ``model``: its shape, parameters by part, FLOPs per token, what a layer keeps."""

from __future__ import annotations

from collections import Counter

from rich.console import Group, RenderableType
from rich.text import Text

from linkscale.estimate.model import LayerGroupCount, ModelSummary
from linkscale.report.layout import facts, section, table
from linkscale.report.model_words import mixer_words, mlp_words
from linkscale.report.text import count, large, percent, significant
from linkscale.workload.architecture import Architecture
from linkscale.workload.parts import DeltaNet, Lightning, Mamba2

PART_WORDS = {
    "embeddings": "token table",
    "final_norm": "norm before the output",
    "output": "vocabulary projection",
}
RECOMPUTE_WORDS = {"none": "nothing", "selective": "attention core", "full": "whole layer"}


def model_page(summary: ModelSummary) -> Group:
    """Return the page of one model."""
    return Group(
        facts(_shape(summary)),
        section("Parameters", _params(summary)),
        section("FLOPs per token", _flops(summary), note=f"in sequences of {summary.seq_len:,} tokens"),
        section("Activations kept for backward", _activations(summary), note="per token and layer, 16 bits, one GPU"),
    )


def _shape(summary: ModelSummary) -> list[tuple[str, RenderableType]]:
    arch = summary.architecture
    active = f", {large(summary.active_params)} of them active" if summary.active_params != summary.params else ""
    return [
        ("model", f"{summary.model} · {large(summary.params)} parameters{active}"),
        *(_kinds(summary) if arch.kinds else _uniform(arch)),
        ("vocabulary", f"{arch.vocab:,} · output {'shares the token table' if arch.tied_embeddings else 'of its own'}"),
        ("norms", _norms(arch)),
        *(("note", note) for note in summary.notes),
        ("source", summary.source),
    ]


def _uniform(arch: Architecture) -> list[tuple[str, RenderableType]]:
    return [
        ("layers", _layers(arch)),
        ("width", f"{arch.hidden:,} · MLP {arch.ffn_hidden:,}, {_mlp(arch)}"),
        ("attention", _attention(arch)),
    ]


def _kinds(summary: ModelSummary) -> list[tuple[str, RenderableType]]:
    """Say what mixers and what MLPs there are, with the number of layers of each."""
    arch = summary.architecture
    streams = f" · {arch.streams} residual streams" if arch.streams > 1 else ""
    facts: list[tuple[str, RenderableType]] = [("layers", f"{arch.layers}"), ("width", f"{arch.hidden:,}{streams}")]
    mixers: Counter[str] = Counter()
    mlps: Counter[str] = Counter()
    for layers, kind in arch.layer_kinds():
        if kind.mixer:
            mixers[mixer_words(kind.mixer)] += layers
        if kind.mlp:
            mlps[mlp_words(arch, kind.mlp)] += layers
    facts += [("attention", _times(words, n, arch)) for words, n in mixers.items()]
    return facts + [("mlp", _times(words, n, arch)) for words, n in mlps.items()]


def _times(words: str, count: int, arch: Architecture) -> str:
    return words if count == arch.layers else f"{count} × {words}"


def _layers(arch: Architecture) -> str:
    windowed = f", {arch.windowed_layers} of them with a window of {arch.window:,} tokens" if arch.window else ""
    parallel = " · attention and MLP in parallel" if arch.parallel_residual else ""
    return f"{arch.layers}{windowed}{parallel}"


def _mlp(arch: Architecture) -> str:
    return f"{'gated ' if arch.gated_mlp else ''}{arch.activation}{' with biases' if arch.mlp_bias else ''}"


def _attention(arch: Architecture) -> str:
    kind = "" if arch.kv_heads == arch.heads else f", {arch.kv_heads} for keys and values"
    positions = {"rope": "rotary", "learned": "learned", "alibi": "ALiBi", "none": "no"}[arch.positions]
    biases = " · biases on query, key, value" if arch.qkv_bias else ""
    return f"{arch.heads} heads of {arch.head_dim}{kind} · {positions} positions{biases}"


def _norms(arch: Architecture) -> str:
    kind = "layer norm" if arch.norm == "layernorm" else "RMS norm"
    place = {"input": "before", "output": "after", "both": "before and after"}[arch.norm_at]
    shared = "one for both halves" if arch.norms == 1 else f"{place} each half"
    heads = {"none": "", "head": " · on every query and key head", "full": " · over queries and keys"}[arch.qk_norm]
    return f"{kind}, {shared}{heads}{' · dropout' if arch.dropout else ''}"


def _params(summary: ModelSummary) -> RenderableType:
    body = table(("<part", "parameters", "share", "<what it is~"))
    for part, value in summary.params_by_part.items():
        if value:
            body.add_row(part, f"{value:,}", percent(value / summary.params), _part_words(summary, part))
    body.add_row(*(Text(cell, style="bold") for cell in ("total", f"{summary.params:,}", percent(1.0), "")))
    if summary.active_params != summary.params:
        share = percent(summary.active_params / summary.params)
        body.add_row("active", f"{summary.active_params:,}", share, "touched by one token")
    for name, value, words in _beside(summary):
        body.add_row(name, f"{value:,}", "", words)
    return body


def _beside(summary: ModelSummary) -> list[tuple[str, int, str]]:
    """What the configuration describes beside the decoder; none of it is in the total."""
    modules = summary.architecture.prediction_modules
    rows = []
    if modules:
        rows.append(("prediction", summary.prediction_params, f"beside: {_further(modules)} in training"))
    for tower in summary.architecture.towers:
        state = "trained" if tower.trained else "taken as frozen; no text passes it"
        rows.append((f"{tower.name} tower", summary.tower_params[tower.name], f"beside: {state}"))
    return rows


def _further(modules: int) -> str:
    return "one further token predicted" if modules == 1 else f"{modules} further tokens predicted"


def _part_words(summary: ModelSummary, part: str) -> str:
    if part == "embeddings" and summary.architecture.positions == "learned":
        return "token table and learned positions"
    if part != "layers":
        return PART_WORDS[part]
    named = len(summary.layer_groups) > 1
    return ", ".join(_group_words(g, named) for g in summary.layer_groups)


def _group_words(group: LayerGroupCount, named: bool) -> str:
    active = f" ({group.active_params:,} active)" if group.active_params != group.params else ""
    return f"{group.count} {group.name + ' ' if named else ''}of {group.params:,}{active} each"


def _flops(summary: ModelSummary) -> RenderableType:
    flops = summary.flops_per_token
    body = table(("<", "forward", "training", "<what it is~"))
    rows = [
        ("matrix products", float(flops.matmul), "output projection included, table lookup not"),
        ("attention, full", flops.attention, f"{_mixed(summary)}every query meets every key, as papers count"),
        ("attention, causal", flops.attention_causal, "only what the mask lets it see"),
    ]
    for name, value, words in rows:
        body.add_row(name, large(value), large(3 * value), words)
    for name, value in (("total, full", flops.forward), ("total, causal", flops.forward_causal)):
        body.add_row(*(Text(cell, style="bold") for cell in (name, large(value), large(3 * value))), "")
    return body


def _mixed(summary: ModelSummary) -> str:
    """Say that scans are counted with attention, where there are any."""
    kinds = (kind.mixer for _, kind in summary.architecture.layer_kinds())
    return "scans too; " if any(isinstance(mixer, DeltaNet | Mamba2 | Lightning) for mixer in kinds) else ""


def _activations(summary: ModelSummary) -> RenderableType:
    body = table(("<recomputed", "<attention", "bytes", "times width"))
    for way in summary.activations_per_layer:
        kernel = "any" if way.recompute == "full" else way.attention
        width = significant(way.bytes_per_token / summary.architecture.hidden, 3)
        body.add_row(RECOMPUTE_WORDS[way.recompute], kernel, count(round(way.bytes_per_token)), width)
    return body

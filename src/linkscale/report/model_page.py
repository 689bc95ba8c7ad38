"""The page of ``model``: its shape, parameters by part, FLOPs per token, what a layer keeps."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from linkscale.estimate.model import ModelSummary
from linkscale.report.layout import facts, section, table
from linkscale.report.text import count, large, percent, significant
from linkscale.workload.architecture import Architecture

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
    return [
        ("model", f"{summary.model} · {large(summary.params)} parameters"),
        ("layers", _layers(summary)),
        ("width", f"{arch.hidden:,} · MLP {arch.ffn_hidden:,}, {_mlp(arch)}"),
        ("attention", _attention(arch)),
        ("vocabulary", f"{arch.vocab:,} · output {'shares the token table' if arch.tied_embeddings else 'of its own'}"),
        ("norms", _norms(arch)),
        ("source", summary.source),
    ]


def _layers(summary: ModelSummary) -> str:
    arch = summary.architecture
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
    return body


def _part_words(summary: ModelSummary, part: str) -> str:
    if part == "embeddings" and summary.architecture.positions == "learned":
        return "token table and learned positions"
    if part != "layers":
        return PART_WORDS[part]
    return ", ".join(f"{g.count} of {g.params:,} each" for g in summary.layer_groups)


def _flops(summary: ModelSummary) -> RenderableType:
    flops = summary.flops_per_token
    body = table(("<", "forward", "training", "<what it is~"))
    rows = [
        ("matrix products", float(flops.matmul), "output projection included, table lookup not"),
        ("attention, full", flops.attention, "every query meets every key, as papers count"),
        ("attention, causal", flops.attention_causal, "only what the mask lets it see"),
    ]
    for name, value, words in rows:
        body.add_row(name, large(value), large(3 * value), words)
    for name, value in (("total, full", flops.forward), ("total, causal", flops.forward_causal)):
        body.add_row(*(Text(cell, style="bold") for cell in (name, large(value), large(3 * value))), "")
    return body


def _activations(summary: ModelSummary) -> RenderableType:
    body = table(("<recomputed", "<attention", "bytes", "times width"))
    for way in summary.activations_per_layer:
        kernel = "any" if way.recompute == "full" else way.attention
        width = significant(way.bytes_per_token / summary.architecture.hidden, 3)
        body.add_row(RECOMPUTE_WORDS[way.recompute], kernel, count(round(way.bytes_per_token)), width)
    return body

"""A Llama as PyTorch users write it: fused where PyTorch fuses, everything else one operation after the other."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: no model can be built")
nn: Any = torch.nn
functional = torch.nn.functional


class Norm(nn.Module):  # type: ignore[misc]
    """RMS norm as Llama's own code writes it: normalised in fp32, weighted in the type of the model."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Any) -> Any:
        """Normalise the last dimension."""
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)


class Attention(nn.Module):  # type: ignore[misc]
    """Grouped-query attention with rotary positions."""

    def __init__(self, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, hidden // heads
        self.q = nn.Linear(hidden, hidden, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.dim, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.dim, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Any, turns: Any) -> Any:
        """Attend causally."""
        batch, length, _ = x.shape
        q = turned(self.q(x).view(batch, length, self.heads, self.dim), turns)
        k = turned(self.k(x).view(batch, length, self.kv_heads, self.dim), turns)
        v = self.v(x).view(batch, length, self.kv_heads, self.dim)
        by_head = (t.transpose(1, 2) for t in (q, k, v))
        seen = functional.scaled_dot_product_attention(*by_head, is_causal=True, enable_gqa=True)
        return self.out(seen.transpose(1, 2).reshape(batch, length, -1))


def turned(x: Any, turns: Any) -> Any:
    """Rotate pairs of features as complex numbers, in fp32."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns[:, None]).flatten(-2).type_as(x)


class Layer(nn.Module):  # type: ignore[misc]
    """Pre-norm layer with a gated MLP."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int) -> None:
        super().__init__()
        self.attention = Attention(hidden, heads, kv_heads)
        self.before, self.between = Norm(hidden), Norm(hidden)
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x: Any, turns: Any) -> Any:
        """Run one layer."""
        x = x + self.attention(self.before(x), turns)
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):  # type: ignore[misc]
    """Embedding, layers, norm, output projection."""

    def __init__(self, vocab: int, hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, seq: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = Norm(hidden)
        self.output = nn.Linear(hidden, vocab, bias=False)
        self.register_buffer("turns", torch.zeros(seq, hidden // heads // 2, dtype=torch.complex64))

    def forward(self, ids: Any) -> Any:
        """Return logits."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.turns)
        return self.output(self.norm(x))

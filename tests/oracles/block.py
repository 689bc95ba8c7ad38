"""A small Llama-like decoder in plain PyTorch, and the same as an architecture. Needs torch."""

from __future__ import annotations

import pytest

from linkscale.workload import Architecture

torch = pytest.importorskip("torch", reason="torch is not installed: no real collectives to compare with")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

ARCH = Architecture(
    name="small", model_type="llama", vocab=512, hidden=256, layers=4, heads=8, kv_heads=8, head_dim=32,
    ffn_hidden=512, gated_mlp=True,
)  # fmt: skip
SEQ = 64


class Attention(nn.Module):
    """Causal self-attention on however many heads the projections leave this rank."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.head_dim = arch.head_dim
        self.wq = nn.Linear(arch.hidden, arch.heads * arch.head_dim, bias=False)
        self.wk = nn.Linear(arch.hidden, arch.kv_heads * arch.head_dim, bias=False)
        self.wv = nn.Linear(arch.hidden, arch.kv_heads * arch.head_dim, bias=False)
        self.wo = nn.Linear(arch.heads * arch.head_dim, arch.hidden, bias=False)

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        scores = (q @ k.transpose(-1, -2) / self.head_dim**0.5).softmax(-1)
        return self.wo((scores @ v).transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    """Gated feed-forward layer."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.w1 = nn.Linear(arch.hidden, arch.ffn_hidden, bias=False)
        self.w3 = nn.Linear(arch.hidden, arch.ffn_hidden, bias=False)
        self.w2 = nn.Linear(arch.ffn_hidden, arch.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """Attention and feed-forward behind a norm each."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(arch.hidden), nn.RMSNorm(arch.hidden)
        self.attention, self.feed_forward = Attention(arch), FeedForward(arch)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Decoder(nn.Module):
    """Embedding, layers, final norm and output projection, untied."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(arch.vocab, arch.hidden)
        self.layers = nn.ModuleList(Layer(arch) for _ in range(arch.layers))
        self.norm = nn.RMSNorm(arch.hidden)
        self.output = nn.Linear(arch.hidden, arch.vocab, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def tokens(micro_batch: int = 1, seq: int = SEQ):
    """Return token ids of one micro-batch."""
    return torch.zeros(micro_batch, seq, dtype=torch.long)

"""Models in plain PyTorch, small enough for a laptop, with the layers of the large ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Sequential):
    """Three linear layers with ReLU."""

    def __init__(self, sizes: tuple[int, ...] = (64, 128, 128, 10)) -> None:
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers[:-1])


class LeNet(nn.Module):
    """Two convolutions with average pooling, then three linear layers, over 28x28 images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.head = nn.Sequential(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.avg_pool2d(torch.tanh(self.first(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.second(x)), 2)
        return self.head(x.flatten(1))


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        short = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.short = short if stride != 1 or before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm_two(self.two(F.relu(self.norm_one(self.one(x)))))
        return F.relu(y + self.short(x))


class ResNet18(nn.Module):
    """The layers of ResNet-18 with fewer channels."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        before = width
        for stage in range(4):
            after = width << stage
            blocks += [Residual(before, after, 1 if stage == 0 else 2), Residual(after, after, 1)]
            before = after
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(before, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1).flatten(1))


class Block(nn.Module):
    """A transformer block: layer norm, causal attention, GELU."""

    def __init__(self, width: int = 64, heads: int = 4, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_one, self.norm_two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.mixed(self.norm_one(x)).view(shape).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.wide(self.norm_two(x))


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """x over its root mean square, in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention whose heads share groups of keys and values."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


class RmsNorm(nn.Module):
    """RMS norm with a weight; `apply` computes it."""

    def __init__(self, width: int, eps: float = 1e-5, apply: Callable[..., Any] = normed) -> None:
        super().__init__()
        self.weight, self.eps, self.computed = nn.Parameter(torch.ones(width)), eps, apply

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.computed(x, self.weight, self.eps)


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding over halves of the last dimension."""
    one, two = x.chunk(2, -1)
    return x * cosine + torch.cat((-two, one), -1) * sine


class Decoder(nn.Module):
    """A Llama-style decoder: RMS norm, rotary embedding, grouped queries, SwiGLU, a cache of keys and values.

    `parts` compute RMS norm and attention.
    """

    def __init__(
        self, layers: int = 4, width: int = 64, heads: int = 4, groups: int = 2, words: int = 96,
        parts: tuple[Callable[..., Any], Callable[..., Any]] = (normed, attended),
    ) -> None:  # fmt: skip
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads, groups, parts) for _ in range(layers))
        self.norm, self.head = RmsNorm(width, apply=parts[0]), nn.Linear(width, words, bias=False)
        size = width // heads
        self.register_buffer("frequencies", 1e4 ** (-torch.arange(0, size, 2).float() / size))

    def forward(
        self, words: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, caches: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and new caches; `caches` is [layers, 2, batch, groups, length, size]."""
        angles = positions.float()[:, None] * self.frequencies[None]
        both = torch.cat((angles, angles), -1)
        turn = both.cos().to(caches.dtype), both.sin().to(caches.dtype)
        x, kept = self.table(words), []
        for layer, cache in zip(self.layers, caches.unbind(0), strict=True):
            x, cache = layer(x, turn, positions, mask, cache)
            kept.append(cache)
        return self.head(self.norm(x)), torch.stack(kept)


class DecoderLayer(nn.Module):
    """Attention over the cache, then SwiGLU."""

    def __init__(
        self, width: int, heads: int, groups: int, parts: tuple[Callable[..., Any], Callable[..., Any]]
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.size, self.attended = heads, groups, width // heads, parts[1]
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width, bias=False), nn.Linear(2 * width, width, bias=False)
        self.norm_one, self.norm_two = RmsNorm(width, apply=parts[0]), RmsNorm(width, apply=parts[0])

    def forward(
        self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], at: torch.Tensor, mask: torch.Tensor,
        cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        batch, length, width = x.shape
        y = self.norm_one(x)
        q = rotated(self.query(y).view(batch, length, self.heads, self.size).transpose(1, 2), *turn)
        k = rotated(self.key(y).view(batch, length, self.groups, self.size).transpose(1, 2), *turn)
        v = self.value(y).view(batch, length, self.groups, self.size).transpose(1, 2)
        keys, values = cache[0].index_copy(2, at, k), cache[1].index_copy(2, at, v)
        seen = self.attended(q, keys, values, mask)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        y = self.norm_two(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)), torch.stack((keys, values))


class Mamba(nn.Module):
    """A selective state space block; the recurrence is a scan in log2(length) steps."""

    def __init__(self, width: int = 32, state: int = 8, kernel: int = 4) -> None:
        super().__init__()
        self.inner, self.state, self.rank = 2 * width, state, max(width // 16, 1)
        self.norm = RmsNorm(width)
        self.into, self.out = nn.Linear(width, 2 * self.inner, bias=False), nn.Linear(self.inner, width, bias=False)
        self.conv = nn.Conv1d(self.inner, self.inner, kernel, padding=kernel - 1, groups=self.inner)
        self.chosen = nn.Linear(self.inner, self.rank + 2 * state, bias=False)
        self.step = nn.Linear(self.rank, self.inner)
        self.decay = nn.Parameter(torch.arange(1, state + 1).float().log().repeat(self.inner, 1))
        self.skip = nn.Parameter(torch.ones(self.inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        data, gate = self.into(self.norm(x)).chunk(2, -1)
        data = F.silu(self.conv(data.transpose(1, 2))[..., :length].transpose(1, 2))
        steps, write, read = self.chosen(data).split((self.rank, self.state, self.state), -1)
        steps = F.softplus(self.step(steps))
        factor = torch.exp(steps[..., None] * -self.decay.exp())
        hidden = scanned(factor, (steps * data)[..., None] * write[:, :, None])
        y = (hidden * read[:, :, None]).sum(-1) + data * self.skip
        return x + self.out(y * F.silu(gate))


def scanned(factor: torch.Tensor, term: torch.Tensor) -> torch.Tensor:
    """h[t] = factor[t] * h[t - 1] + term[t] along dimension 1."""
    reach = 1
    while reach < term.shape[1]:
        earlier = F.pad(term[:, :-reach], (0, 0, 0, 0, reach, 0))
        factors = F.pad(factor[:, :-reach], (0, 0, 0, 0, reach, 0), value=1.0)
        term, factor = term + factor * earlier, factor * factors
        reach *= 2
    return term


class Classifier(nn.Module):
    """Two transformer blocks over the rows of small images: for training."""

    def __init__(self, rows: int = 8, columns: int = 8, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.shape = (rows, columns)
        self.into, self.place = nn.Linear(columns, width), nn.Parameter(torch.zeros(rows, width))
        self.blocks = nn.Sequential(*(Block(width, 4, causal=False) for _ in range(2)))
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x.view(-1, *self.shape)) + self.place
        return self.head(self.blocks(x).mean(1))


def causal_mask(length: int, size: int, start: int) -> torch.Tensor:
    """Which of `size` cached places the queries at start, start + 1, ... may see."""
    return torch.arange(size)[None, :] <= torch.arange(start, start + length)[:, None]

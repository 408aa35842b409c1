"""Small models of the kinds of GPT-2 and Llama, and what they are trained with."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, LENGTH, WIDTH, HEADS, BATCH = 32, 16, 32, 8, 8


class Block(nn.Module):
    """Attention and what feeds forward; the Llama has two heads for each of the keys, and a gate."""

    def __init__(self, llama: bool) -> None:
        super().__init__()
        inner, keys = 2 * WIDTH, WIDTH // 2 if llama else WIDTH
        norm: Any = nn.RMSNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(WIDTH), norm(WIDTH)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, not llama), nn.Linear(WIDTH, WIDTH, not llama)
        self.k, self.v = nn.Linear(WIDTH, keys, not llama), nn.Linear(WIDTH, keys, not llama)
        self.up, self.down = nn.Linear(WIDTH, inner, not llama), nn.Linear(inner, WIDTH, not llama)
        self.gate = nn.Linear(WIDTH, inner, bias=False) if llama else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for f in (self.q, self.k, self.v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.gate is not None)
        x = x + self.o(seen.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        inner = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(inner)


class Model(nn.Module):
    """Words to the logits of the words that follow. A stage of a pipeline has some of the layers, and maybe no ends."""

    def __init__(self, llama: bool = False, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(layers)
        self.words: nn.Module | None = nn.Embedding(WORDS, WIDTH)
        self.places: nn.Module | None = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(llama) for _ in range(layers))
        self.head: nn.Module | None = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False))

    def forward(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        if self.words is not None and self.places is not None:
            at = torch.arange(x.shape[1], device=x.device) if places is None else places
            x = self.words(x) + self.places(at)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)

    def stage(self, number: int, stages: int) -> Model:
        """What remains for one stage."""
        each = len(self.blocks) // stages
        self.blocks = self.blocks[number * each : (number + 1) * each]
        if number:
            self.words = self.places = None
        if number < stages - 1:
            self.head = None
        return self


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Words, and those that follow."""
    made = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(step))
    return made[:, :-1].contiguous(), made[:, 1:].contiguous()


def loss_of(logits: Tensor, wanted: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2).float(), wanted.flatten())


def optimizer_of(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, foreach=False)


def clip(parameters: Any) -> None:
    """As trainers do; the norm is that of all gradients on all ranks."""
    torch.nn.utils.clip_grad_norm_(parameters, 0.5, foreach=False)


def reference(steps: int, llama: bool, layers: int, clipped: bool) -> list[float]:
    """The losses of one process on the CPU."""
    model = Model(llama, layers)
    optimizer = optimizer_of(model.parameters())
    losses = []
    for step in range(steps):
        words, wanted = batch(step)
        loss = loss_of(model(words), wanted)
        optimizer.zero_grad()
        loss.backward()
        if clipped:
            clip(model.parameters())
        optimizer.step()
        losses.append(loss.item())
    return losses

"""A decoder layer of a model of 70 billion parameters, divided among ranks, and the step of all of them.

``python -m benchmarks.sharded_layer 4 16 64 [--tokens 2048] [--json]`` compiles one rank for each number of ranks on
this machine, and prints what its step takes on trn2, with the seconds and the memory that took here. Weights are shapes
alone. For figures that do not depend on each other, start it once for each number of ranks.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn

from nki.interop.torch import profile_step
from nki.profiling.ranks.record import StepProfile

HIDDEN, HEADS, KV_HEADS, FFN, WIDTH = 8192, 64, 8, 28672, 128


class Layer(nn.Module):
    """What one of `ranks` has of the layer: heads, a part of the feed-forward, and keys and values of its heads."""

    def __init__(self, ranks: int, dtype: torch.dtype) -> None:
        """Weights are on the device that is current."""
        super().__init__()
        self.heads, self.kv = HEADS // ranks, max(KV_HEADS // ranks, 1)
        self.norm, self.ffn_norm = nn.RMSNorm(HIDDEN, 1e-5, dtype=dtype), nn.RMSNorm(HIDDEN, 1e-5, dtype=dtype)

        def linear(wide: int, made: int) -> nn.Linear:
            return nn.Linear(wide, made, bias=False, dtype=dtype)

        self.query, self.output = linear(HIDDEN, self.heads * WIDTH), linear(self.heads * WIDTH, HIDDEN)
        self.key, self.value = (linear(HIDDEN, self.kv * WIDTH) for _ in range(2))
        self.gate, self.up = (linear(HIDDEN, FFN // ranks) for _ in range(2))
        self.down = linear(FFN // ranks, HIDDEN)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """The layer for tokens of one sequence, [1, tokens, HIDDEN]."""
        x = x + self.reduced(self.attended(self.norm(x), cosine, sine))
        made = self.ffn_norm(x)
        return x + self.reduced(self.down(nn.functional.silu(self.gate(made)) * self.up(made)))

    def attended(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Attention of this rank's heads, each with the keys and values of its group."""
        tokens = x.shape[1]
        query, key, value = (
            each(x).view(1, tokens, -1, WIDTH).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        query, key = (rotated(each, cosine, sine) for each in (query, key))
        made = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.output(made.transpose(1, 2).reshape(1, tokens, -1))

    def reduced(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks."""
        return functional.all_reduce(x, "sum", dist.group.WORLD)


def rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of the two halves of each head."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def measured(ranks: int, tokens: int, dtype: torch.dtype = torch.bfloat16) -> tuple[StepProfile, dict[str, Any]]:
    """The step of a number of ranks, and what compiling and timing it took here."""

    def step() -> None:
        with torch.device("meta"), torch.no_grad():
            layer = torch.compile(Layer(ranks, dtype), backend="neuron", options={"target": "trn2"}, fullgraph=True)
            rotary = (torch.empty(tokens, WIDTH // 2, dtype=dtype) for _ in range(2))
            layer(torch.empty(1, tokens, HIDDEN, dtype=dtype), *rotary)

    begun, used = time.perf_counter(), _processor()
    found = profile_step(step, ranks, name=f"layer of {tokens} tokens")
    took = {"seconds": time.perf_counter() - begun, "processor_seconds": _processor() - used}
    return found, {**took, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _processor() -> float:
    """Seconds of the processor, of this process and of those that it started and that are over."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", nargs="+", type=int)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for ranks in asked.ranks:
        found, took = measured(ranks, asked.tokens)
        rows.append({"ranks": ranks, **took, **found.to_json()})
        if not asked.json:
            print(found.summary())
            print(took)
    if asked.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

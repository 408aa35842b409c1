"""Functional collectives of PyTorch in an exported program, executed on four ranks, against NumPy."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from functools import partial
from pathlib import Path
import sys
import numpy as np, torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from nki.graph.importers.torch.exported_program import read_exported
from nki.ranks.parallel import Parallel

dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
world, pair = dist.group.WORLD, dist.new_group([0, 2])

class Collectives(torch.nn.Module):
    def forward(self, x):
        return (
            functional.all_reduce(x, "sum", world),
            functional.all_reduce(x, "product", world),
            functional.all_gather_tensor(x, 1, world),
            functional.reduce_scatter_tensor(x, "avg", 0, world),
            functional.all_to_all_single(x, None, None, world),
            functional.broadcast(x, 2, world),
            functional.all_reduce_coalesced([x, -x], "max", world)[1],
            functional.all_gather_into_tensor_coalesced([x, -x], world)[1],
            functional.reduce_scatter_tensor_coalesced([x, -x], "sum", [0, 0], world)[1],
            functional.permute_tensor(x.flatten(), [1, 2, 3, 0], world).reshape(8, 6),
        )

class Pairs(torch.nn.Module):
    def forward(self, x):
        return functional.all_gather_tensor(x, 0, pair), functional.broadcast(x, 1, pair)

class Uneven(torch.nn.Module):
    def forward(self, x):
        return functional.all_to_all_single(x, [1, 1, 2, 4], [2, 2, 2, 2], world)

def compiled(model):
    path = Path(sys.argv[1], "model.pt2")
    torch.export.save(torch.export.export(model, (torch.zeros(8, 6),)), path)
    return compile_module(read_exported(path), target="trn2")

def on(ranks, model):
    return Parallel(4).run([partial(model.run, [x[rank]]) if rank in ranks else list for rank in range(4)])

x = [np.random.default_rng(rank).standard_normal((8, 6)).astype(np.float32) for rank in range(4)]
for rank, found in enumerate(on(range(4), compiled(Collectives()))):
    total = ((x[0] + x[1]) + x[2]) + x[3]
    parts = [np.split(one, 4) for one in x]
    wanted = (
        total, ((x[0] * x[1]) * x[2]) * x[3], np.concatenate(x, 1), np.split(total / 4, 4)[rank],
        np.concatenate([part[rank] for part in parts]), x[2], -np.min(x, 0),
        -np.concatenate(x), -np.split(total, 4)[rank], x[rank - 1],
    )
    print(*(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)))
for gathered, sent in (found for found in on((0, 2), compiled(Pairs())) if found):
    print(np.array_equal(gathered, np.concatenate([x[0], x[2]])), np.array_equal(sent, x[2]))
try:
    compiled(Uneven())
except GraphError as error:
    print(error.code, "it sends parts of [2, 2, 2, 2] rows, and gets parts of [1, 1, 2, 4]" in str(error))
"""


def test_collectives_of_a_program_of_pytorch(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    wanted = " ".join(["True"] * 10) + "\n"
    assert done.stdout == wanted * 4 + "True True\n" * 2 + "graph.unsupported True\n", done.stderr[-3000:]

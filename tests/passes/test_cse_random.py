"""Random programs keep their bytes, also if instructions are issued again where their inputs may have changed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from nki.core.tensor import View
from nki.options import Options
from nki.passes import cse
from nki.passes.context import Context
from nki.passes.editing.rewrite import Edit, renamed, rewritten
from nki.spec.program import Block, Issued, Program
from nki.spec.verify_program import verify_program
from nki.target.load import load_target
from nki.testing.adversary import Policy
from tests.fuzz.checks import adverse
from tests.fuzz.checks import traced as traced_case
from tests.fuzz.programs import case
from tests.support import environment


def doubled(program: Program, random: Random) -> Program:
    """The program with instructions issued again somewhere behind, into tensors that later ones read in their place."""
    edits: dict[int, Edit] = {}
    number = max((buffer.id for buffer in program.body.all_buffers()), default=0) + 1
    for block in _blocks(program.body):
        edit = edits.setdefault(id(block), Edit())
        for place, item in enumerate(block.items):
            if not isinstance(item, Issued) or not _simple(item) or random.random() < 0.2:
                continue
            at = min(place + random.choice([1, 1, 2, 3, 8]), len(block.items) - 1)
            names = {old: new for from_, renames in edit.renames.items() if from_ <= at for old, new in renames.items()}
            dst = item.arguments.dst
            new = replace(dst.buffer, id=number, name=f"again{number}")
            number += 1
            again = renamed(item, names) if random.random() < 0.7 else item
            again = again._replace(arguments=again.arguments._replace(dst=dst._replace(buffer=new)))
            edit.buffers.append(new)
            edit.after.setdefault(at, []).append(again)
            edit.renames.setdefault(at + 1, {})[dst.buffer.id] = new
    return rewritten(program, edits)


def _blocks(block: Block) -> list[Block]:
    return [block, *(b for item in block.items if not isinstance(item, Issued) for b in _blocks(item.body))]


def _simple(issued: Issued) -> bool:
    """It overwrites one tensor on chip that it does not read."""
    operands = issued.instruction.operands
    written = [view for name, view in issued.views() if operands[name].writes]
    read = [view.buffer for name, view in issued.views() if operands[name].reads]
    dst = getattr(issued.arguments, "dst", None)
    return (
        len(written) == 1
        and isinstance(dst, View)
        and written[0] is dst
        and dst.buffer.on_chip
        and dst.buffer.address is None
        and dst.buffer not in read
        and not issued.instruction.effects(issued.arguments)
    )


def _length(program: Program) -> int:
    return sum(1 for _ in program.body.walk())


@pytest.mark.parametrize("group", [0, 1, 2, *(pytest.param(group, marks=pytest.mark.slow) for group in range(3, 8))])
def test_random_programs_compute_the_same_bytes(group: int) -> None:
    dropped = 0
    for seed in range(group * 8, group * 8 + 8):
        one, random = case(seed), Random(seed)
        target = load_target(one.target)
        context = Context(target, Options(target=one.target), one.config)
        with environment(NEURON_PLATFORM_TARGET_OVERRIDE=one.target):
            traced = traced_case(one)
            for programs in (traced, [doubled(program, random) for program in traced]):
                after = [cse.run(program, context) for program in programs]
                assert not [finding for program in after for finding in verify_program(program, target)]
                dropped += sum(_length(p) - _length(q) for p, q in zip(programs, after, strict=True))
                assert adverse(one, after, Policy()) == adverse(one, programs, Policy()), seed
    assert dropped > 0, dropped

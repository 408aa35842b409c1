"""Programs that were joined get waits that order everything between them, and keep their order, queues and places."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from benchmarks.kernels import loops, rows

from nki.core.errors import VerificationError
from nki.options import Options
from nki.passes.context import Context
from nki.passes.pipeline import PIPELINE
from nki.passes.proof.happens_before import check
from nki.passes.scheduling.resynchronize import relink
from nki.spec.program import Block, Issued, Program, Sync
from nki.testing.adversary import Policy, run_adversely
from tests.ir.kernels import traced
from tests.passes.kernels import TRN2, shape


def compiled(kernel: Any, *arrays: np.ndarray) -> Program:
    program = traced(kernel, *arrays)[0]
    for item in PIPELINE:
        program = item.run(program, Context(TRN2))
    return program


def bare(block: Block) -> Block:
    """The same queues without waits and signals."""
    items = [item if isinstance(item, Issued) else replace(item, body=bare(item.body)) for item in block.items]
    return Block(block.buffers, items, [None if sync is None else Sync(sync.queue) for sync in block.sync or ()])


def joined(first: Program, second: Program) -> Program:
    """Both after each other: the second one reads what the first one returned, and their tensors share SBUF."""
    (output,), (given,) = first.outputs, second.inputs
    own = {buffer.id: buffer for buffer in second.body.all_buffers()} | {
        view.buffer.id: view.buffer for view in second.outputs
    }
    new = {key: replace(buffer, id=key + 100_000) for key, buffer in own.items()} | {given.id: output.buffer}
    new |= {b.id: replace(b, id=b.id + 100_000) for b in second.inputs[1:]}
    moved = _with_buffers(bare(second.body), new)
    body = bare(first.body)
    places = {key + 100_000: place for key, place in (second.placement or {}).items()}
    return replace(
        first,
        inputs=[*first.inputs, *(new[b.id] for b in second.inputs[1:])],
        outputs=[view._replace(buffer=new[view.buffer.id]) for view in second.outputs],
        body=Block(
            [*body.buffers, *moved.buffers], [*body.items, *moved.items], [*(body.sync or ()), *(moved.sync or ())]
        ),
        placement={**(first.placement or {}), **places},
        edges=[],
    )


def _with_buffers(block: Block, new: dict[int, Any]) -> Block:
    def view(value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "buffer"):
            return value._replace(buffer=new.get(value.buffer.id, value.buffer))
        return value

    def item(one: Any) -> Any:
        if isinstance(one, Issued):
            return one._replace(arguments=type(one.arguments)(*map(view, one.arguments)))
        return replace(one, body=_with_buffers(one.body, new))

    return Block([new.get(b.id, b) for b in block.buffers], [item(one) for one in block.items], block.sync)


def numbers(*size: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(size).astype(np.float32)


def results(program: Program, arrays: list[np.ndarray], policy: Policy) -> list[bytes]:
    return [r.tobytes() for r in run_adversely([program], [a.copy() for a in arrays], TRN2, policy, Options())]


def test_two_kernels_after_each_other_are_ordered() -> None:
    a = numbers(256, 512)
    first, second = compiled(rows.softmax, a), compiled(rows.cumsum, a)
    loose = joined(first, second)
    assert check([loose], TRN2)  # without waits it is not
    linked = relink(loose, TRN2)
    assert check([linked], TRN2) == []
    assert [s.queue for s in linked.body.sync or () if s] == [s.queue for s in loose.body.sync or () if s]
    assert linked.body.items == loose.body.items and linked.placement == loose.placement
    wanted = results(second, [np.frombuffer(results(first, [a], Policy())[0], np.float32).reshape(a.shape)], Policy())
    random = Random(5)
    queues = sorted({s.queue for s in linked.body.sync or () if s})
    policies = [Policy(in_flight=True), *(Policy("late", queue, in_flight=True) for queue in queues)]
    policies += [Policy("random", seed=random.getrandbits(16), in_flight=n % 2 == 0) for n in range(8)]
    assert all(results(linked, [a], policy) == wanted for policy in policies)
    assert any(results(loose, [a], policy) != wanted for policy in policies)


@pytest.mark.parametrize(
    "kernel, size", [(rows.softmax, (384, 128)), (loops.scaled, (4, 128, 64)), (loops.normalized, (5, 128, 64))]
)
def test_a_compiled_program_gets_its_own_waits_again(kernel: Any, size: tuple[int, ...]) -> None:
    program = compiled(kernel, numbers(*size))
    linked = relink(replace(program, body=bare(program.body)), TRN2)
    assert shape(linked.body) == shape(program.body)
    assert check([linked], TRN2) == []
    assert all(a.sync == b.sync for a, b in zip(_blocks(linked.body), _blocks(program.body), strict=True))


def _blocks(block: Block) -> list[Block]:
    return [block, *(one for item in block.items if not isinstance(item, Issued) for one in _blocks(item.body))]


def test_an_instruction_without_a_queue_is_named() -> None:
    program = compiled(rows.softmax, numbers(128, 64))
    program = replace(program, body=replace(program.body, sync=None))
    with pytest.raises(VerificationError) as caught:
        relink(program, TRN2)
    assert caught.value.code == "timeline.unsynchronized"
    assert "rows.py" in str(caught.value)

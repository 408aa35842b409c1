"""Whether the results of a kernel depend on what its schedule leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nki.driver.compile import compiled
from nki.driver.prepare import Launchable, prepare
from nki.options import Options
from nki.spec.program import Block, Issued, Program
from nki.target.model import Target
from nki.testing.adversary import Policy, run_adversely


def check_any_order(kernel: Launchable, *args: Any, random_orders: int = 2, **kwargs: Any) -> int:
    """Assert that a kernel computes the same bytes in every legal order that is tried.

    The kernel is compiled for the arguments and executed on copies of them: in the order of its program, with each
    queue as late and as early as its waits allow while transfers arrive at the last moment, and in random orders.

    Args:
        kernel: what `nki.jit` returned.
        args, kwargs: its arguments, as in a call.
        random_orders: how many random orders are tried.

    Returns:
        How many orders were compared with that of the program.

    Raises:
        AssertionError: an order gives other bytes; the message names it and the result or argument.
        NkiError: the kernel is refused, or no queue can go on in some order (``schedule.stuck``).
    """
    prepared = prepare(kernel, args, kwargs, mode="compiled")
    programs = compiled(prepared).programs
    arrays = [host.array for host in prepared.arguments.arrays]
    expected = _bytes(programs, arrays, prepared.target, Policy(), prepared.options)
    policies = [*_adverse(programs), *(Policy("random", seed=seed, in_flight=True) for seed in range(random_orders))]
    for policy in policies:
        found = _bytes(programs, arrays, prepared.target, policy, prepared.options)
        differs = [name for name in expected if found[name] != expected[name]]
        if differs:
            raise AssertionError(f"{programs[0].name}: {', '.join(differs)} differ under {policy}")
    return len(policies)


def _adverse(programs: Sequence[Program]) -> Iterator[Policy]:
    queues = sorted({queue for program in programs for queue in _queues(program.body)})
    yield Policy(in_flight=True)
    for queue in queues:
        yield Policy("late", queue, in_flight=True)
        yield Policy("early", queue, in_flight=True)


def _queues(block: Block) -> Iterator[str]:
    yield from (sync.queue for sync in block.sync or () if sync is not None)
    for item in block.items:
        if not isinstance(item, Issued):
            yield from _queues(item.body)


def _bytes(
    programs: Sequence[Program], arrays: Sequence[np.ndarray], target: Target, policy: Policy, options: Options
) -> dict[str, bytes]:
    """Bytes of the results by position, and of the arguments, which a kernel may write to."""
    copies = [array.copy() for array in arrays]
    results = run_adversely(programs, copies, target, policy, options)
    named = {f"result {number}": result.tobytes() for number, result in enumerate(results)}
    inputs = zip(programs[0].inputs, copies, strict=True)
    return named | {f"argument {buffer.name}": copy.tobytes() for buffer, copy in inputs}

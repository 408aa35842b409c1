"""Two cores that do not do the same where they must."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import Topic, X, call, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


@refused(
    "cores.deadlock",
    X,
    lnc=2,
    at="nisa.core_barrier(shared, (0, 1))",
    cure=edit("    if nl.program_id(0) == 0:\n        nisa", "    nisa"),
)
def barrier_on_one_of_two_cores(a: Any) -> None:
    shared = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.core_barrier(shared, (0, 1))


@refused(
    "cores.deadlock",
    X,
    lnc=2,
    at="nisa.core_barrier(shared, (0, 1))",
    cure=edit("range(1 + nl.program_id(0))", "range(2)"),
)
def more_barriers_on_the_second_core(a: Any) -> None:
    shared = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    for _ in range(1 + nl.program_id(0)):
        nisa.core_barrier(shared, (0, 1))


@refused(
    "cores.mismatch",
    X,
    lnc=2,
    at="nisa.sendrecv(tile, other, 0, 0, pipe_id=0)",
    cure=edit("nisa.core_barrier(shared, (0, 1))", "nisa.sendrecv(tile, other, 1, 1, pipe_id=0)"),
)
def barrier_meets_transfer(a: Any) -> None:
    shared = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    tile, other = nl.load(a), nl.ndarray((4, 8), nl.float32)
    if nl.program_id(0) == 0:
        nisa.core_barrier(shared, (0, 1))
    else:
        nisa.sendrecv(tile, other, 0, 0, pipe_id=0)


@refused(
    "cores.mismatch",
    X,
    lnc=2,
    at="nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=core)",
    cure=edit("pipe_id=core", "pipe_id=0"),
)
def two_pipes(a: Any) -> None:
    core = nl.program_id(0)
    tile, other = nl.load(a), nl.ndarray((4, 8), nl.float32)
    nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=core)


@refused(
    "cores.shared-mismatch",
    X,
    lnc=2,
    at="nl.ndarray((4 + nl.program_id(0), 8), nl.float32, buffer=nl.shared_hbm)",
    cure=edit("4 + nl.program_id(0)", "5"),
)
def shared_tensor_of_two_shapes(a: Any) -> Any:
    return nl.ndarray((4 + nl.program_id(0), 8), nl.float32, buffer=nl.shared_hbm)


@refused(
    "cores.shared-mismatch",
    X,
    lnc=2,
    at='nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm, name="right")',
    cure=edit('name="left"', 'name="both"', 'name="right"', 'name="both"'),
)
def shared_tensor_of_two_names(a: Any) -> None:
    if nl.program_id(0) == 0:
        nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm, name="left")
    else:
        nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm, name="right")


@refused(
    "cores.contents",
    X,
    lnc=2,
    at="nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=0)",
    cure=edit("0 : 8 - core", "0:8", "(4, 8 - core)", "(4, 8)"),
)
def transfer_of_two_sizes(a: Any) -> None:
    core = nl.program_id(0)
    tile, other = nl.load(a[:, 0 : 8 - core]), nl.ndarray((4, 8 - core), nl.float32)
    nisa.sendrecv(tile, other, 1 - core, 1 - core, pipe_id=0)


@refused(
    "cores.deadlock",
    X,
    lnc=2,
    at="nisa.sendrecv(tile, other, 1, 1, pipe_id=0)",
    cure=edit("other, 1, 1,", "other, 1 - nl.program_id(0), 1 - nl.program_id(0),"),
)
def both_cores_send_to_the_second(a: Any) -> None:
    tile, other = nl.load(a), nl.ndarray((4, 8), nl.float32)
    nisa.sendrecv(tile, other, 1, 1, pipe_id=0)


@refused(
    "cores.route",
    X,
    lnc=2,
    at="nisa.sendrecv(tile, other, 1 - core, core, pipe_id=0)",
    cure=edit("1 - core, core,", "1 - core, 1 - core,"),
)
def cores_that_receive_from_themselves(a: Any) -> None:
    core = nl.program_id(0)
    tile, other = nl.load(a), nl.ndarray((4, 8), nl.float32)
    nisa.sendrecv(tile, other, 1 - core, core, pipe_id=0)


@refused(
    "cores.alone",
    X,
    at="nisa.core_barrier(shared, (0, 1))",
    cure=call(lnc=2),
)
def barrier_on_a_single_core(a: Any) -> None:
    shared = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    nisa.core_barrier(shared, (0, 1))


@refused(
    "core_barrier.cores", X, lnc=2, at="nisa.core_barrier(shared, (0, 1, 2, 3))", cure=edit("(0, 1, 2, 3)", "(0, 1)")
)
def barrier_of_four_cores(a: Any) -> None:
    shared = nl.ndarray((4, 8), nl.float32, buffer=nl.shared_hbm)
    nisa.core_barrier(shared, (0, 1, 2, 3))


@refused(
    "sendrecv.ranks",
    X,
    lnc=2,
    at="nisa.sendrecv(tile, other, 2, 2, pipe_id=0)",
    cure=edit("other, 2, 2,", "other, 1 - nl.program_id(0), 1 - nl.program_id(0),"),
)
def transfer_to_a_third_core(a: Any) -> None:
    tile, other = nl.load(a), nl.ndarray((4, 8), nl.float32)
    nisa.sendrecv(tile, other, 2, 2, pipe_id=0)


@refused("grid.axis", X, lnc=2, at="nl.program_id(1)", cure=edit("program_id(1)", "program_id(0)"))
def second_axis_of_the_grid(a: Any) -> None:
    nl.program_id(1)

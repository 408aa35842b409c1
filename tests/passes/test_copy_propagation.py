"""A broadcast row is read from PSUM where all its readers may, and results keep their bits; else its tile stays."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.asm.lower import lower
from nki.asm.raising import raise_
from nki.core.tensor import MemoryRegion
from nki.ir.build import build
from nki.ir.read import read
from nki.ir.text import from_text, to_text
from nki.language.memory import copied_tile
from nki.options import Options
from nki.passes import copy_propagation
from nki.passes.context import Context
from nki.passes.lint.memory import memory_findings
from nki.passes.pipeline import PIPELINE, compile_programs
from nki.target.load import load_target
from nki.testing.adversary import Policy, run_adversely
from nki.testing.equality import differences
from tests.asm.compiled import compiled
from tests.ir.kernels import traced
from tests.passes.broadcasts import (
    BROADCAST,
    COLUMNS,
    COPY,
    LOADS,
    ROW,
    ROWS,
    STORE,
    Use,
    X,
    all_at_once,
    around,
    by_hand,
    counted,
    multiplied,
    product,
    sbuf,
    times,
    wide,
)
from tests.passes.kernels import passed, results, shape


def test_on_each_target(target: str) -> None:
    """Bits as a run of the traced program and the eager mode have them, with all kinds of numbers."""
    row, x = ROW.copy(), X.copy()
    row[0, :8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38]
    kernel = around(lambda x, row, out: times(x, wide(row)))
    (before,) = traced(kernel, x, row, target=target)
    after = copy_propagation.PASS.run(before, Context(load_target(target)))
    assert shape(before.body) == [*LOADS, *BROADCAST, COPY, "tensor_tensor", *STORE]
    assert shape(after.body) == [*LOADS, *BROADCAST, "tensor_tensor", *STORE]
    reader = list(after.body.walk())[-2]
    assert reader.arguments.data2.region is MemoryRegion.psum
    assert [b.role for b in after.body.all_buffers()] == ["temporary"] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = nki.simulate(kernel)(x, row)
        found = [
            run_adversely([program], [x.copy(), row.copy()], load_target(target), Policy(), Options())[0]
            for program in (before, after)
        ]
    assert found[0].tobytes() == found[1].tobytes() == np.asarray(eager).tobytes()


@pytest.fixture(params=["trn1", "trn2", "trn3"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", request.param)
    return str(request.param)


def two_readers(x: Any, row: Any, out: Any) -> None:
    tile = wide(row)
    times(x, tile)
    nisa.activation(dst=x, op=nl.exp, data=tile)


def parts(x: Any, row: Any, out: Any) -> None:
    """Views with an offset, other steps, and another shape."""
    tile = wide(row)
    times(x[32:64, 8:24], tile[32:64, 40:56])
    times(x[:, 0:8], tile.ap([[COLUMNS, ROWS], [4, 8]], offset=3))
    times(x.reshape((ROWS, 8, 8)), tile.reshape((ROWS, 8, 8)))


def in_a_loop(x: Any, row: Any, out: Any) -> None:
    nl.fori_loop(0, 3, lambda i: times(x, wide(row)))


def also_read_in_psum(x: Any, row: Any, out: Any) -> None:
    found, tile = product(row), copied_tile((ROWS, COLUMNS), nl.float32)
    nisa.activation(dst=tile, op=nl.copy, data=found)
    times(x, found)
    times(x, tile)


def both_operands(x: Any, row: Any, out: Any) -> None:
    """No instruction of Vector reads two tiles of PSUM, so that one of the copies stays."""
    one, other = wide(row), wide(row)
    nisa.tensor_tensor(dst=x, data1=one, data2=other, op=nl.add)


def other_edges(x: Any, row: Any, out: Any) -> None:
    """Orders of other instructions follow them."""
    first = nisa.memset(sbuf((1, 8)), 0.0)
    times(x, wide(row))
    nisa.memset(sbuf((1, 8)), 0.0).depends_on(first)


GOES: dict[str, tuple[Use, int, list[Any]]] = {
    "two readers": (two_readers, 1, ["tensor_tensor", COPY]),
    "parts": (parts, 1, ["tensor_tensor"] * 3),
    "of the language": (lambda x, row, out: nl.multiply(x, row), 1, ["tensor_tensor"]),
    "a source with another reader": (also_read_in_psum, 1, ["tensor_tensor"] * 2),
    "two operands": (both_operands, 1, [*BROADCAST, COPY, "tensor_tensor"]),
    "copied by hand": (lambda x, row, out: times(x, by_hand(row)), 1, ["tensor_tensor"]),
}


@pytest.mark.parametrize("name", GOES)
def test_goes(name: str) -> None:
    use, fewer, wanted = GOES[name]
    before, after = passed(around(use), [X, ROW], copy_propagation.PASS)
    assert shape(after.body) == [*LOADS, *BROADCAST, *wanted, *STORE]
    assert counted(before) - counted(after) == Counter({COPY: fewer})
    assert results(before, [X, ROW]) == results(after, [X, ROW])


def test_in_a_loop() -> None:
    before, after = passed(around(in_a_loop), [X, ROW], copy_propagation.PASS)
    assert shape(after.body) == [*LOADS, [(0, 3, 1), *BROADCAST, "tensor_tensor"], *STORE]
    assert results(before, [X, ROW]) == results(after, [X, ROW])


def test_positions_follow() -> None:
    before, after = passed(around(other_edges), [X, ROW], copy_propagation.PASS)
    assert (before.edges, after.edges) == ([(2, 7)], [(2, 6)])
    assert [list(after.body.walk())[at].instruction.name for at in (2, 6)] == ["memset", "memset"]


def test_nothing_is_changed_in_place() -> None:
    (before,), (again,) = (traced(around(parts), X, ROW) for _ in "ab")
    copy_propagation.PASS.run(before, Context(load_target("trn2")))
    assert differences(before, again) == []


# --- the mark


def test_the_mark_survives() -> None:
    """The pass does the same to a program that was written down."""
    (program,) = traced(around(parts), X, ROW)
    assert [b.role for b in program.body.all_buffers() if b.on_chip].count("copy") == 1
    (back,) = read(from_text(to_text(build([program]))))
    assert differences(program, back) == []
    context = Context(load_target("trn2"))
    assert differences(copy_propagation.PASS.run(program, context), copy_propagation.PASS.run(back, context)) == []
    assert counted(copy_propagation.PASS.run(back, context))[COPY] == 0


def test_a_tile_that_nobody_reads_is_a_dead_store() -> None:
    """As any other temporary."""
    (program,) = traced(around(lambda x, row, out: by_hand(row)), X, ROW)
    found = [(one.code, one.location) for one in memory_findings([program], load_target("trn2"))]
    assert found == [("lint.dead-store", list(program.body.walk())[4].location)]


def test_a_tile_that_stays_is_assembled() -> None:
    program = compiled(traced(around(multiplied), X, ROW)[0])
    assert "copy" in [buffer.role for buffer in program.body.all_buffers()]
    assert differences(program, raise_(lower(program))) == []


def test_compiled_with_all_passes() -> None:
    """Behind the pass comes everything else, whose schedule is proven by the last one."""
    (program,) = traced(around(all_at_once), X, ROW)
    names = [item.name for item in PIPELINE if item.name != copy_propagation.PASS.name]
    at = names.index("accumulate_flags")
    rest = [item for item in PIPELINE if item.name in names]
    context = Context(load_target("trn2"))
    (done,) = compile_programs([program], context, (*rest[:at], copy_propagation.PASS, *rest[at:])).programs
    assert counted(done)[COPY] == 2
    assert results(done, [X, ROW]) == results(program, [X, ROW])
    assert done.passed[at] == "copy_propagation"

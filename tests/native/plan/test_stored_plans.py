"""Plans on disk: the same bits, warnings and counts as plans that were just made, and nothing damaged is used."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.tensor import Buffer
from nki.native.objects import blobs
from nki.native.objects.library import Library
from nki.native.plan import stored_plans
from nki.native.records import forms
from nki.native.run import kernel
from nki.native.tiering.compilation_policy import Functions
from nki.store.outline import StoredProgram
from nki.store.programs import pack_programs
from tests.native.kernel_support import Arrays, by_numpy, seen
from tests.support import environment

ROOT = Path(__file__).resolve().parents[3]
ROWS, COLUMNS = 8, 48


@pytest.fixture(scope="module", autouse=True)
def one_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache for this module, so that functions are compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NKI_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("NKI_CACHE", raising=False)
        patch.setattr(forms, "_FORMS", {})  # the others have functions that this directory does not have
        yield


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What a test keeps, and nothing of the others."""
    found: dict[str, bytes] = {}
    monkeypatch.setattr(Library, "kept", lambda self, key: found.get(key))
    monkeypatch.setattr(Library, "keep", lambda self, key, data: found.update({key: data}))
    return found


def arrays() -> Arrays:
    """Numbers, and how many rows there are."""
    random = np.random.default_rng(3)
    return random.standard_normal((ROWS, COLUMNS)).astype(np.float32), np.array([[ROWS]], np.int32)


def straight(a: Any, n: Any) -> Any:
    """Tiles in the pool, one that is an argument, one that becomes the result, and a constant."""
    table = nl.shared_constant(np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS))
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x, y, z = (nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf) for _ in range(3))
    nisa.dma_copy(dst=x, src=a)
    nisa.dma_copy(dst=y, src=table)
    nisa.activation(dst=z, op=nl.exp, data=x)
    nisa.tensor_tensor(z, z, y, nl.multiply)
    nisa.dma_copy(dst=out, src=z)
    return out


def loops(a: Any, n: Any) -> Any:
    """Registers, a bound from memory, and addresses that depend on the index."""
    out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
    upper = nisa.register_alloc()
    nisa.register_load(upper, n)

    def body(i: Any) -> None:
        row = nl.ndarray((1, COLUMNS), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=row, src=a.select(0, i))
        nisa.tensor_scalar(row, row, nl.multiply, 3.0)
        nisa.dma_copy(dst=out.select(0, i), src=row)

    nl.fori_loop(0, upper, body)
    return out


def written_in_place(a: Any, n: Any) -> Any:
    """An argument that changes, at an explicit address on the way."""
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf, address=(0, 256))
    nisa.dma_copy(dst=x, src=a)
    nisa.tensor_scalar(x, x, nl.add, 1.0)
    nisa.dma_copy(dst=a, src=x)
    return a


def left_to_numpy(a: Any, n: Any) -> Any:
    """Roots of negative numbers, of which NumPy warns: each a version of a tile, argument, pool and result in turn."""
    out, more = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm), nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.activation(dst=x, op=nl.sqrt, data=x)
    nisa.tensor_scalar(x, x, nl.subtract, 1.0)
    nisa.activation(dst=x, op=nl.sqrt, data=x)
    nisa.dma_copy(dst=out, src=x)
    nisa.tensor_scalar(x, x, nl.subtract, 1.0)
    nisa.activation(dst=x, op=nl.sqrt, data=x)
    nisa.dma_copy(dst=more, src=x)
    return out, more


KERNELS = (straight, loops, written_in_place)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often plans were made."""
    made: list[int] = []
    plain = kernel.NativeKernel._make_plans

    def counted(self: kernel.NativeKernel) -> None:
        made.append(1)
        plain(self)

    monkeypatch.setattr(kernel.NativeKernel, "_make_plans", counted)
    return made


def fresh(function: Callable[..., Any]) -> Any:
    """A kernel that remembers nothing."""
    return nki.jit(function)


def body_is_decoded(program: Any) -> bool:
    """Whether somebody asked for the instructions of a program."""
    if type(program) is not StoredProgram:
        return True
    try:
        object.__getattribute__(program, "body")
    except AttributeError:
        return False
    return True


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("function", KERNELS, ids=lambda f: f.__name__)
def test_a_kept_plan_is_the_plan(function: Callable[..., Any], threads: int, planned: list[int]) -> None:
    expected = by_numpy(function, arrays)
    with environment(NKI_NATIVE="always", NKI_THREADS=str(threads)):
        first = fresh(function)
        assert seen(first, arrays()) == expected
        assert planned == [1]
        second = fresh(function)
        second(*arrays())
        assert second.report.compiled == "disk"
        assert not body_is_decoded(second.report.programs[0])
        assert second.report.executed == first.report.executed
        assert seen(fresh(function), arrays()) == expected
        assert planned == [1]
        assert second.report.instructions() == first.report.instructions()
        assert pack_programs(second.report.programs) == pack_programs(first.report.programs)


@pytest.mark.parametrize("threads", [1, 2])
def test_instructions_of_a_kept_plan_that_are_left_to_numpy(threads: int, planned: list[int]) -> None:
    expected = by_numpy(left_to_numpy, arrays)
    assert len(expected[0][1]) == 3, "each root warns"
    with environment(NKI_NATIVE="always", NKI_THREADS=str(threads)):
        assert seen(fresh(left_to_numpy), arrays()) == expected
        assert seen(fresh(left_to_numpy), arrays()) == expected
    assert planned == [1]


OTHER_PROCESS = """
import numpy as np
from tests.native.plan.test_stored_plans import arrays, body_is_decoded, straight
import nki, sys
found = nki.jit(straight)
print(found(*arrays()).tobytes().hex(), found.report.compiled, body_is_decoded(found.report.programs[0]))
print("torch_mlir" in sys.modules)
"""


def test_another_process_takes_the_plan_from_disk(tmp_path: Path) -> None:
    settings = {"NKI_CACHE_DIR": str(tmp_path), "NKI_NATIVE": "always", "NKI_THREADS": "1"}
    variables = {**os.environ, **settings, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}

    def output() -> list[str]:
        command = [sys.executable, "-c", OTHER_PROCESS]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    expected = nki.simulate(straight)(*arrays()).tobytes().hex()
    assert output() == [expected, "compiled", "True", "True"]
    assert output() == [expected, "disk", "False", "False"]


def test_plans_of_other_settings_are_others(planned: list[int]) -> None:
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        fresh(straight)(*arrays())
    with environment(NKI_NATIVE="always", NKI_THREADS="2"):
        fresh(straight)(*arrays())
        assert len(planned) == 2
        fresh(straight)(*arrays())
        assert len(planned) == 2


def endless(a: Any, n: Any) -> Any:
    """A loop that ends after as many trips as a word of memory says, with more trips than Python is asked after."""
    out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
    count = nisa.register_alloc(0)
    row = nl.zeros((1, COLUMNS), a.dtype, buffer=nl.sbuf)

    def body(_: Any) -> None:
        nisa.tensor_scalar(row, row, nl.add, 1.0)

    nisa.register_move(count, 1 << 15)
    nl.fori_loop(0, count, body)
    nisa.dma_copy(dst=out[0:1], src=row)
    return out


def test_python_is_asked_between_trips_and_knows_the_loop(planned: list[int]) -> None:
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        for _ in range(2):
            found = fresh(endless)
            assert found(*arrays())[0, 0] == 1 << 15
    assert planned == [1]
    assert found.report.compiled == "disk"


def unwritten(a: Any, n: Any) -> Any:
    """Reads what was never written, which the NumPy machine watches."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(x[:, 0:1], x[:, 1:2], nl.add, 1.0)
    nisa.dma_copy(dst=out, src=x)
    return out


def test_what_numpy_executes_is_not_kept(planned: list[int]) -> None:
    expected = by_numpy(unwritten, arrays)
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        assert seen(fresh(unwritten), arrays()) == expected
        assert seen(fresh(unwritten), arrays()) == expected
    assert len(planned) == 2


@pytest.fixture
def entry(plans: dict[str, bytes]) -> tuple[Any, list[np.ndarray], Any]:
    """The document, the arrays and the programs of a kernel with a loop."""
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        found = fresh(loops)
        found(*arrays())
    (data,) = plans.values()
    return (*blobs.read(data), found.report.programs)


def rebuilt(document: Any, columns: list[np.ndarray], programs: Any) -> Any:
    """What becomes of an entry; functions have made-up addresses, and nothing is executed."""
    return stored_plans.unpacked(
        document, columns, programs, [4096 * (1 + i) for i in range(len(document["functions"]))]
    )


def test_an_intact_entry_is_used(entry: Any) -> None:
    assert rebuilt(*entry) is not None


def changed_column(which: int, change: Callable[[np.ndarray], Any]) -> Callable[[Any, list[np.ndarray]], None]:
    def damage(_: Any, columns: list[np.ndarray]) -> None:
        columns[which] = columns[which].copy()
        columns[which] = np.asarray(change(columns[which]), columns[which].dtype)

    return damage


def changed_core(name: str, value: Callable[[Any], Any]) -> Callable[[Any, list[np.ndarray]], None]:
    def damage(document: Any, _: list[np.ndarray]) -> None:
        document["cores"][0][name] = value(document["cores"][0][name])

    return damage


def put(at: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(column: np.ndarray) -> np.ndarray:
        column[at] = value
        return column

    return change


DAMAGE = {
    "function": changed_column(0, put(0, 1000)),
    "negative function": changed_column(0, put(0, -1)),
    "length of a record": changed_column(0, put(1, 5)),
    "words": changed_column(0, lambda words: words[:-1]),
    "no words": changed_column(0, lambda words: words[:0]),
    "start": changed_column(1, put(1, 3)),
    "start outside": changed_column(1, put(-1, 1 << 40)),
    "no starts": changed_column(1, lambda starts: starts[:0]),
    "instruction without a record": changed_column(2, put(0, 1)),
    "pairs": changed_column(4, lambda _: [1]),
    "chunks": changed_column(5, lambda _: [1]),
    "base": changed_core("inputs", lambda inputs: [[1000, *place[1:]] for place in inputs]),
    "special base": changed_core("inputs", lambda inputs: [[0, *place[1:]] for place in inputs]),
    "inputs": changed_core("inputs", lambda inputs: inputs[1:]),
    "numbers": changed_core("numbers", lambda numbers: numbers[:-1]),
    "kind of number": changed_core("numbers", lambda numbers: [str(number) for number in numbers]),
    "stretch": changed_core("stretches", lambda stretches: [[start + 1, end, work] for start, end, work in stretches]),
    "region": changed_core("reach", lambda _: [["moon", 1]]),
    "buffers": changed_core("buffers", lambda _: [[]]),
    "cores": lambda document, _: document["cores"].append(document["cores"][0]),
    "columns": lambda _, columns: columns.pop(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_not_used(entry: Any, damage: Callable[[Any, list[np.ndarray]], None]) -> None:
    document, columns, programs = copy.deepcopy(entry[0]), list(entry[1]), entry[2]
    damage(document, columns)
    assert rebuilt(document, columns, programs) is None


@pytest.mark.parametrize("data", [b"", b"x" * 40, None], ids=["empty", "noise", "another program's"])
def test_a_file_that_is_something_else_is_made_anew(
    data: bytes | None, planned: list[int], plans: dict[str, bytes]
) -> None:
    found = blobs.written({"functions": [], "cores": []}, []) if data is None else data
    expected = by_numpy(straight, arrays)
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        fresh(straight)(*arrays())
        plans.update(dict.fromkeys(plans, found))
        assert seen(fresh(straight), arrays()) == expected
    assert len(planned) == 2


def test_a_plan_whose_functions_are_gone_is_made_anew(planned: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        fresh(straight)(*arrays())
        monkeypatch.setattr(Functions, "found", lambda self, names: None)
        fresh(straight)(*arrays())
    assert len(planned) == 2


def test_blobs_come_back() -> None:
    document = {"a": [1, "two", None]}
    columns = [np.arange(5), np.array([], np.int64), np.array([7, 8], np.uint8)]
    back, found = blobs.read(blobs.written(document, columns))
    assert back == document
    assert [column.tolist() for column in found] == [column.tolist() for column in columns]
    assert [column.dtype for column in found] == [column.dtype for column in columns]


@pytest.mark.parametrize("at", [0, 8, 20, -1])
def test_damaged_blobs_are_refused(at: int) -> None:
    data = bytearray(blobs.written({"a": 1}, [np.arange(100)]))
    data[at] ^= 0xFF
    with pytest.raises(blobs.DamagedError):
        blobs.read(bytes(data))
    with pytest.raises(blobs.DamagedError):
        blobs.read(bytes(blobs.written({"a": 1}, [np.arange(100)])[:-3]))


def test_blobs_hold_integers_only() -> None:
    with pytest.raises(blobs.DamagedError):
        blobs.read(blobs.written({}, [np.array([1.5])]))


def test_outlines_name_what_the_instructions_name() -> None:
    with environment(NKI_NATIVE="always", NKI_THREADS="1"):
        fresh(straight)(*arrays())
        again = fresh(straight)
        again(*arrays())
    program = again.report.programs[0]
    before: list[Buffer] = program.inputs
    assert not body_is_decoded(program)
    first = next(iter(program.body.walk()))
    named = {view.buffer for issued in program.body.walk() for _, view in issued.views()}
    assert first.instruction.name
    assert program.inputs[0] in named
    assert [repr(buffer) for buffer in program.inputs] == [repr(buffer) for buffer in before]

"""Loop statements on the device: what runs agrees with NumPy in every mode, what is refused points at its line."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ExecutionError, FrontendError, NkiError
from tests.frontend.kernels import accepted, rejected
from tests.frontend.kernels.accepted.case import Case, X, number
from tests.support import both, rejection, same_bits
from tests.together import together

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def modules(package: Any) -> list[Any]:
    return [importlib.import_module(f"{package.__name__}.{m.name}") for m in pkgutil.iter_modules(package.__path__)]


ACCEPTED: list[Case] = [case for module in modules(accepted) for case in vars(module).get("CASES", [])]
REJECTED: list[Callable[..., Any]] = [kernel for module in modules(rejected) for kernel in module.KERNELS]


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: f"{case.kernel.__module__[-10:]}-{case.kernel.__name__}")
def test_accepted(case: Case) -> None:
    for arguments in case.arguments:
        got = both(case.kernel, *arguments, lnc=case.lnc)
        np.testing.assert_array_equal(np.asarray(got), case.expected(*arguments))


@together("kernel", REJECTED)
def test_rejected(kernel: Callable[..., Any]) -> None:
    error = rejection(kernel, number(3))
    lines, first = inspect.getsourcelines(kernel)
    code, offset = next((m[1], k) for k, line in enumerate(lines) if (m := re.search(r"# error: (\S+)", line)))
    frame = error.location.frame
    assert error.code == code
    assert frame is not None and (frame.file, frame.line) == (inspect.getsourcefile(kernel), first + offset)
    assert error.fix and str(error).count("^") >= 1
    if code.startswith(("loop.", "register.python")):
        assert isinstance(error, FrontendError)


def test_the_caret_is_below_what_is_bound() -> None:
    text = str(rejection(next(k for k in REJECTED if k.__name__ == "number"), number(3))).splitlines()
    row = next(k for k, line in enumerate(text) if "count += 1" in line)
    assert text[row + 1].index("^") == text[row].index("count") and text[row + 1].count("^") == len("count")


def test_code_without_source_is_told_to_use_a_function() -> None:
    names: dict[str, Any] = {"nl": nl, "nisa": nisa}
    exec("def kernel(a):\n    for i in nl.dynamic_range(4):\n        pass\n    return a\n", names)
    error = rejection(names["kernel"], X)
    assert error.code == "loop.source" and "nl.fori_loop" in error.fix


def test_a_file_that_changed_since_is_not_misread(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "changing.py"
    loop = "    for i in nl.dynamic_range(4):\n        pass\n    return a\n"
    path.write_text(f"import nki.language as nl\ndef kernel(a):\n{loop}")
    monkeypatch.syspath_prepend(tmp_path)
    kernel = importlib.import_module("changing").kernel
    path.write_text("import nki.language as nl\n\n\ndef kernel(a):\n    return (\n")
    assert rejection(kernel, X).code == "loop.dynamic-range"


def test_a_debugger_sees_every_trip() -> None:
    seen: list[tuple[Any, ...]] = []

    def kernel(a: Any) -> Any:
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        for i in nl.dynamic_range(3):
            row = nl.ndarray((1, a.shape[1]), a.dtype)
            nisa.dma_copy(dst=row, src=a.select(0, i))
            seen.append(tuple(row.peek()[0]))
        return out

    nki.simulate(kernel)(X)
    assert seen == [tuple(row) for row in X[:3]]


def test_scalars_compute_as_numpy_does() -> None:
    """All operators on random and extreme pairs, with registers on either side, against NumPy's int32."""
    operators: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "+": (lambda a, b: a + b, np.add),
        "-": (lambda a, b: a - b, np.subtract),
        "*": (lambda a, b: a * b, np.multiply),
        "//": (lambda a, b: a // b, np.floor_divide),
        "%": (lambda a, b: a % b, np.remainder),
        "&": (lambda a, b: a & b, np.bitwise_and),
        "|": (lambda a, b: a | b, np.bitwise_or),
        "^": (lambda a, b: a ^ b, np.bitwise_xor),
        "<": (lambda a, b: a < b, np.less),
        "<=": (lambda a, b: a <= b, np.less_equal),
        ">": (lambda a, b: a > b, np.greater),
        ">=": (lambda a, b: a >= b, np.greater_equal),
        "==": (lambda a, b: a == b, np.equal),
        "!=": (lambda a, b: a != b, np.not_equal),
    }
    random = np.random.default_rng(7)
    low, high = -(2**31), 2**31 - 1
    pairs = np.concatenate(
        [
            random.integers(low, high, (6, 2), np.int32, endpoint=True),
            np.array([[7, -2], [-7, 2], [low, 3], [high, high], [5, 5], [-1, 1]], np.int32),
        ]
    )

    def kernel(data: Any, constants: Any) -> Any:
        out = nl.ndarray((3 * len(operators), len(constants)), nl.int32, buffer=nl.shared_hbm)
        for k, (a, b) in enumerate(constants):
            x, y = nisa.scalar_load(data[k, 0]), nisa.scalar_load(data[k, 1])
            plain = nisa.register_alloc(b)
            for row, (ours, _) in enumerate(operators.values()):
                for side, value in enumerate((ours(x, y), ours(a, y), ours(x, plain))):
                    nisa.scalar_store(out[3 * row + side, k], value)
        return out

    constants = tuple((int(a), int(b)) for a, b in pairs)
    with np.errstate(all="ignore"):
        wanted = [theirs(pairs[:, 0], pairs[:, 1]).astype(np.int32) for _, theirs in operators.values()]
    got = both(kernel, pairs, constants)
    np.testing.assert_array_equal(got, np.repeat(np.stack(wanted), 3, axis=0))


@pytest.mark.parametrize("count", [0, 1, 31, 32, 1000])
@pytest.mark.parametrize("value", [5, -5, 2**31 - 1])
def test_shifts_leave_what_32_bits_hold(value: int, count: int) -> None:
    def kernel(a: Any, n: Any) -> Any:
        out = nl.ndarray((1, 4), nl.int32, buffer=nl.shared_hbm)
        x, s = nisa.scalar_load(a), nisa.scalar_load(n)
        for k, result in enumerate((x << s, x >> s, value << s, ~(-x))):
            nisa.scalar_store(out[0:1, k : k + 1], result)
        return out

    left = np.array(value << count & 0xFFFFFFFF, np.uint32).view(np.int32)
    got = both(kernel, number(value), number(count))
    np.testing.assert_array_equal(got, [[left, value >> count, left, value - 1]])


@pytest.mark.parametrize("work", [lambda x: x // 0, lambda x: 3 % x, lambda x: x << -1], ids=["div", "mod", "shift"])
def test_impossible_arithmetic_is_found_while_it_runs(work: Callable[[Any], Any]) -> None:
    error = rejection(lambda a: [work(nisa.scalar_load(a)), a][1], number(0))
    assert isinstance(error, ExecutionError) and error.code == "register.arithmetic"


def test_an_endless_loop_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nki.sim.walk.TRIP_LIMIT", 50)

    def kernel(a: Any) -> Any:
        register = nisa.register_alloc(1)
        while register:
            nisa.register_move(register, 1)
        return a

    assert rejection(kernel, X).code == "loop.endless"


def test_rejection_leaves_nothing_behind() -> None:
    """A kernel may be refused and then, changed, accepted: no state outlives a call."""

    def kernel(a: Any, bad: bool) -> Any:
        out = nl.zeros(a.shape, a.dtype, buffer=nl.shared_hbm)
        for i in nl.dynamic_range(2):
            nisa.dma_copy(dst=out.select(0, i), src=a.select(0, i))
            if bad:
                raise KeyError("mine")
        return out

    made = nki.jit(kernel)
    with pytest.raises(KeyError):
        made(X, True)
    wanted = np.where(np.arange(8)[:, None] < 2, X, 0)
    same_bits(made(X, False), wanted)
    with pytest.raises(NkiError):
        made(X, 0.5, 3)

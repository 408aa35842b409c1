"""Every kind of argument, and results in the caller's kind and dtype."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArgumentError, LaunchError, NkiError
from tests.support import both, environment, rejection
from tests.together import together


def load(array: Any) -> Any:
    tile = nl.ndarray(array.shape, array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def plus(a: Any, b: Any) -> Any:
    x = load(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=load(b), op=nl.add)
    return store(x)


X = np.arange(32, dtype=np.float32).reshape(4, 8)

DTYPES = [
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3,
    ml_dtypes.float8_e5m2,
    np.int32,
    np.uint32,
    np.int16,
    np.uint16,
    np.int8,
    np.uint8,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_numpy_arrays_of_every_dtype(dtype: Any) -> None:
    a = (X % 5).astype(dtype)
    result = both(plus, a, a)
    assert result.dtype == np.dtype(dtype)
    assert (result.astype(np.float32) == a.astype(np.float32) * 2).all()


def test_torch_tensors_come_back_as_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.float8_e5m2):
        a = torch.from_numpy(X % 5).to(dtype)
        for run in (nki.jit(plus), nki.simulate(plus)):
            result = run(a, a)
            assert isinstance(result, torch.Tensor)
            assert result.dtype == dtype
            assert torch.equal(result.float(), a.float() * 2)


def test_non_contiguous_arrays_are_seen_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    assert (both(plus, X.T, X.T) == X.T * 2).all()
    t = torch.from_numpy(X.copy())
    assert torch.equal(nki.jit(plus)(t.T, t.T), t.T * 2)


def test_jax_arrays_come_back_as_jax_arrays() -> None:
    jax = pytest.importorskip("jax")
    a = jax.numpy.asarray(X, dtype=jax.numpy.bfloat16)
    result = nki.jit(plus)(a, a)
    assert isinstance(result, jax.Array)
    assert result.dtype == jax.numpy.bfloat16
    assert (np.asarray(result, np.float32) == X * 2).all()


def in_place(a: Any) -> None:
    x = load(a)
    nisa.tensor_tensor(dst=x, data1=x, data2=x, op=nl.add)
    nisa.dma_copy(dst=a, src=x)


@pytest.mark.parametrize("run", [nki.jit(in_place), nki.simulate(in_place)], ids=["compiled", "eager"])
def test_inputs_that_the_kernel_writes_change_in_place(run: Any) -> None:
    torch = pytest.importorskip("torch")
    a, b, c = X.copy(), np.asfortranarray(X), torch.from_numpy(X.copy()).T
    for array in (a, b, c):
        assert run(array) is None
    assert (a == X * 2).all()
    assert (b == X * 2).all()
    assert torch.equal(c.T, torch.from_numpy(X * 2))


def test_inputs_that_cannot_change_are_refused_before_anything_runs() -> None:
    jax = pytest.importorskip("jax")
    fixed = X.copy()
    fixed.flags.writeable = False
    with pytest.raises(LaunchError, match=r"argument\.read-only"):
        nki.jit(in_place)(fixed)
    with pytest.raises(LaunchError, match=r"argument\.immutable"):
        nki.jit(in_place)(jax.numpy.asarray(X))


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    array: Any
    scale: float = 1.0


class Config(nl.NKIObject):
    array: Any
    nested: Any
    missing: int = 7


@dataclasses.dataclass
class Plain(nl.NKIObject):
    first = None
    second = 2
    third: int = 3

    def __post_init__(self) -> None:
        self.total = (self.first or 0) + self.second + self.third


@dataclasses.dataclass
class Own(nl.NKIObject):
    first: int
    second: int

    def __init__(self, only: int) -> None:
        self.first = self.second = only


def test_a_dataclass_keeps_its_own_constructor_and_missing_fields_are_none() -> None:
    @dataclasses.dataclass
    class Missing(nl.NKIObject):
        first: int
        second: Any
        third: list[int] = dataclasses.field(default_factory=list)

    assert (Own(3).first, Own(only=4).second) == (3, 4)
    assert (Missing(1).second, Missing(second=2).first, Missing(1, 2).third) == (None, None, [])


def test_plain_class_attributes_of_a_dataclass_are_fields_too() -> None:
    made = Plain(first=10, third=30)
    assert (made.first, made.second, made.third, made.total) == (10, 2, 30, 42)
    assert Plain.first is None
    with pytest.raises(TypeError):
        Plain(fourth=4)


def structured(pair: Any, table: Any, record: Any, config: Any, color: Color, name: str, nothing: Any, op: Any) -> Any:
    assert color == Color.RED
    assert name == "kernel"
    assert nothing is None
    assert config.missing == 7
    x = load(pair.left)
    for tensor in (pair.right, table["a"][0], table["a"][1], record.array, config.array, config.nested.array):
        nisa.tensor_tensor(dst=x, data1=x, data2=load(tensor), op=op)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=record.scale)
    return {"sum": store(x), "pair": Pair(store(x), None)}


def test_containers_objects_enums_strings_and_functions() -> None:
    config = Config(array=X, nested=Frozen(X))
    pair, table, record = Pair(X, X), {"a": (X, X)}, Frozen(X, 0.5)
    result = both_results(structured, pair, table, record, config, Color.RED, "kernel", None, nl.add)
    assert (result["sum"] == X * 3.5).all()
    assert isinstance(result["pair"], Pair)
    assert (result["pair"].left == X * 3.5).all()
    assert result["pair"].right is None
    assert config.array is X


def both_results(kernel: Any, *args: Any) -> Any:
    eager, compiled = nki.simulate(kernel)(*args), nki.jit(kernel)(*args)
    assert (eager["sum"] == compiled["sum"]).all()
    return compiled


def test_constants_are_part_of_the_cache_key() -> None:
    @nki.jit
    def scaled(a: Any, factor: float = 2.0) -> Any:
        x = load(a)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=factor)
        return store(x)

    assert (scaled(X) == X * 2).all()
    assert (scaled(X, 3.0) == X * 3).all()
    assert (scaled(X, factor=4) == X * 4).all()
    assert (scaled(X[:2], 3.0) == X[:2] * 3).all()
    assert (scaled(X) == X * 2).all()


def test_the_body_runs_once_per_specialisation(capsys: pytest.CaptureFixture[str]) -> None:
    @nki.jit
    def counted(a: Any) -> Any:
        print("ran")
        return store(load(a))

    with environment(NKI_CACHE="0"):
        for _ in range(3):
            counted(X)
        assert capsys.readouterr().out.split() == ["ran"]
        counted(X[:2])
        assert capsys.readouterr().out.split() == ["ran"]


def test_print_at_trace_time_and_nested_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    @nki.jit
    def inner(a: Any) -> Any:
        return load(a)

    @nki.jit
    def outer(a: Any) -> Any:
        print("shape", a.shape)
        return store(inner(a))

    assert (both(outer, X) == X).all()
    assert capsys.readouterr().out.count("shape (4, 8)") == 2


def test_scalars_of_numpy_are_numbers() -> None:
    def kernel(a: Any, n: int) -> Any:
        assert isinstance(n, int)
        return store(load(a[:n]))

    assert (both(kernel, X, np.int64(2)) == X[:2]).all()


REFUSED: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("argument.no-array", lambda a: store(load(a)) if a.shape else None, ([[1.0, 2.0]],)),
    ("argument.dtype", lambda a: store(load(a)), (X.astype(np.float64),)),
    ("argument.dtype", lambda a: store(load(a)), (X.astype(np.int64),)),
    ("argument.dtype", lambda a: store(load(a)), (X.astype(np.complex64),)),
    ("argument.dtype", lambda a: store(load(a)), (np.array(["text"]),)),
    ("argument.dtype", lambda a: store(load(a)), (np.array([object()]),)),
    ("argument.empty", lambda a: store(load(a)), (X[:0],)),
    ("call.kernel-arguments", lambda a: store(load(a)), (X, X)),
    ("call.kernel-arguments", lambda a, b: store(load(a)), (X,)),
    ("return.region", load, (X,)),
    ("return.kind", lambda a: 3, (X,)),
    ("return.kind", lambda a: X, (X,)),
    ("tensor.partitions", lambda a: nl.ndarray((129, 4), nl.float32), (X,)),
    ("tensor.empty", lambda a: nl.ndarray((0, 4), nl.float32), (X,)),
    ("tensor.rank", lambda a: nl.ndarray((4,), nl.float32), (X,)),
    ("tensor.shape", lambda a: nl.ndarray((4, 2.0), nl.float32), (X,)),
    ("tensor.shape", lambda a: nl.ndarray("48", nl.float32), (X,)),
    ("tensor.buffer", lambda a: nl.ndarray((4, 4), nl.float32, buffer="sbuf"), (X,)),
    ("dtype.unknown", lambda a: nl.ndarray((4, 4), "flaot32"), (X,)),
    ("dtype.unsupported", lambda a: nl.ndarray((4, 4), np.float64), (X,)),
    ("tensor.address", lambda a: nl.ndarray((4, 4), nl.float32, address=5), (X,)),
    ("tensor.address", lambda a: nl.ndarray((4, 4), nl.float32, buffer=nl.hbm, address=(0, 0)), (X,)),
    ("tensor.truth", lambda a: store(load(a)) if load(a)[:, 0:1] else None, (X,)),
    ("tensor.iteration", lambda a: [store(load(row)) for row in a], (X,)),
    ("tensor.assignment", lambda a: a.__setitem__(0, "1.0"), (X,)),
    ("tensor.numpy", lambda a: np.exp(a), (X,)),  # noqa: PLW0108
    ("operand.kind", lambda a: nisa.tensor_copy(dst=nl.ndarray((4, 8), nl.float32), src=X), (X,)),
    ("operand.kind", lambda a: nisa.tensor_copy(dst=[load(a)], src=load(a)), (X,)),
    ("operand.region", lambda a: nisa.tensor_copy(dst=load(a), src=a), (X,)),
    ("operand.region", lambda a: nisa.dma_copy(dst=nl.ndarray((4, 8), nl.float32, buffer=nl.psum), src=a), (X,)),
    ("operand.operator", lambda a: nisa.tensor_tensor(load(a), load(a), load(a), op=np.add), (X,)),
    ("operand.operator", lambda a: nisa.tensor_tensor(load(a), load(a), load(a), op="add"), (X,)),
    ("call.unknown-argument", lambda a: nisa.tensor_copy(dst=load(a), scr=load(a)), (X,)),
    ("call.missing", lambda a: nisa.tensor_copy(dst=load(a)), (X,)),
    ("call.too-many", lambda a: nisa.memset(load(a), 0, nisa.engine.vector, "n", 5), (X,)),
    ("call.twice", lambda a: nisa.memset(load(a), 0, value=1), (X,)),
    ("tensor_tensor.shapes", lambda a: nisa.tensor_tensor(load(a), load(a), load(a[:, :4]), op=nl.add), (X,)),
    ("dma_copy.element-count", lambda a: nisa.dma_copy(dst=nl.ndarray((4, 4), nl.float32), src=a), (X,)),
    ("operand.start-partition", lambda a: nisa.memset(nl.ndarray((64, 8), nl.float32)[8:40], 0.0), (X,)),
    ("access.out-of-bounds", lambda a: nisa.memset(load(a)[0:5], 0.0), (X,)),
    ("access.out-of-bounds", lambda a: nisa.memset(load(a).ap([[8, 4], [1, 9]]), 0.0), (X,)),
    ("access.out-of-bounds", lambda a: nisa.memset(load(a).ap([[8, 4], [1, 9]])[:, 0:2], 0.0), (X,)),
]


@together("code, kernel, args", REFUSED)
def test_bad_input_has_its_own_error_with_a_remedy(code: str, kernel: Any, args: tuple[Any, ...]) -> None:
    error = rejection(kernel, *args)
    assert error.code == code
    assert error.fix
    assert error.location.frames
    assert f"error[{code}]" in str(error)


def test_a_pattern_that_reaches_too_far_may_be_made_but_not_used() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        tile.ap([[8, 4], [1, 9]])
        return store(tile)

    assert (both(kernel, X) == X).all()


def test_outside_a_kernel_instructions_say_so() -> None:
    with pytest.raises(NkiError, match=r"kernel\.outside"):
        nl.ndarray((4, 4), nl.float32)
    with pytest.raises(NkiError, match=r"kernel\.outside"):
        nisa.memset(None, 0)


def test_a_tensor_of_an_ended_kernel_is_refused() -> None:
    kept: list[Any] = []

    def keep(a: Any) -> Any:
        kept.append(load(a))
        return store(kept[0])

    def use(a: Any) -> Any:
        nisa.tensor_copy(dst=load(a), src=kept[0])

    nki.jit(keep)(X)
    assert rejection(use, X).code == "tensor.escaped"
    with pytest.raises(ArgumentError, match=r"argument\.tensor"):
        nki.jit(plus)(kept[0], X)


def test_a_kernel_without_source_works_and_its_errors_say_so() -> None:
    space: dict[str, Any] = {"nl": nl, "nisa": nisa, "load": load, "store": store}
    exec("def good(a):\n    return store(load(a))\ndef bad(a):\n    nisa.memset(load(a), 'x')\n", space)
    assert (both(space["good"], X) == X).all()
    error = rejection(space["bad"], X)
    assert error.code == "operand.kind"
    assert "source not available" in str(error)


def test_wrong_grids_and_targets() -> None:
    kernel = nki.jit(plus)
    for grid in (0, "2", (1, 2), 1.5):
        with pytest.raises(LaunchError, match=r"launch\.grid"):
            kernel[grid]
    assert rejection(kernel, X, X, lnc=3).code == "launch.lnc"
    assert rejection(kernel, X, X, lnc=2, target="trn1").code == "launch.lnc"
    with pytest.raises(LaunchError, match=r"jit\.function"):
        nki.jit(3)
    with pytest.raises(LaunchError, match=r"jit\.argument"):
        nki.jit(lnc=2)

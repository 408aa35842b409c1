"""What an earlier load brought is read again; whatever may differ in any way, or may be gone, is loaded again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.options import IMITATE, Options
from nki.passes import keep_loads
from nki.passes.context import Context
from nki.passes.imitation import imitation
from nki.spec.program import Program
from nki.testing.adversary import Policy, run_adversely
from tests.ir.kernels import traced
from tests.passes.kernels import TRN2
from tests.together import together

TILE = (128, 16)
A = np.arange(2 * 128 * 16, dtype=np.float32).reshape(2 * 128, 16)


def loads(program: Program) -> int:
    """How many loads there are."""
    return sum(
        1
        for issued in program.body.walk()
        if issued.instruction.name == "dma_copy" and not issued.arguments.src.region.on_chip
    )


def sbuf(shape: tuple[int, ...] = TILE, dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def load(source: Any, tile: Any = None) -> Any:
    tile = sbuf(source.shape, source.dtype) if tile is None else tile
    nisa.dma_copy(dst=tile, src=source)
    return tile


def sums(out: Any, *tiles: Any) -> None:
    """Every tile is read on its own, and stored."""
    for number, tile in enumerate(tiles):
        one = sbuf()
        nisa.tensor_scalar(dst=one, data=tile, op0=nl.add, operand0=float(number))
        nisa.dma_copy(dst=out[number * 128 : (number + 1) * 128], src=one)


def around(change: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """A kernel whose body is `change`, which is given the input and a result of four tiles."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray((4 * 128, 16), a.dtype, buffer=nl.shared_hbm)
        kept = change(a, out)
        return out if kept is None else (out, kept)

    return kernel


def stored(a: Any, out: Any) -> None:
    """The source is written between the loads."""
    x = load(a[:128])
    nisa.dma_copy(dst=a[0:64], src=x[64:128])
    sums(out, x, load(a[:128]), load(a[128:]), load(a[128:]))


def stored_elsewhere(a: Any, out: Any) -> None:
    """What is written is another tensor."""
    x = load(a[:128])
    nisa.dma_copy(dst=out[3 * 128 :], src=x)
    sums(out, x, load(a[:128]))
    nisa.dma_copy(dst=out[2 * 128 : 3 * 128], src=x)


def changed(a: Any, out: Any) -> None:
    """The copy is computed on where it lies."""
    x = load(a[:128])
    nisa.tensor_scalar(dst=x[0:1], data=x[0:1], op0=nl.add, operand0=1.0)
    sums(out, x, load(a[:128]), load(a[128:]), load(a[128:]))


def refilled(a: Any, out: Any) -> None:
    """One tile for everything."""
    x = sbuf()
    for number, part in enumerate([0, 1, 0, 1]):
        load(a[part * 128 : (part + 1) * 128], x)
        one = sbuf()
        nisa.tensor_scalar(dst=one, data=x, op0=nl.add, operand0=float(number))
        nisa.dma_copy(dst=out[number * 128 : (number + 1) * 128], src=one)


def looped(a: Any, out: Any) -> None:
    """A loop on the device between the loads writes to the source."""
    x = load(a[:128])

    def trip(i: Any) -> None:
        nisa.dma_copy(dst=a.ap([[16, 64], [1, 16]], offset=0, scalar_offset=i, indirect_dim=0), src=x[0:64])

    nl.fori_loop(1, 3, trip)
    sums(out, x, load(a[:128]))
    sums(out[2 * 128 :], load(a[128:]), load(a[:128]))


def in_a_loop(a: Any, out: Any) -> None:
    """Both loads in the body of a loop."""

    def trip(i: Any) -> None:
        sums(out, load(a[:128]), load(a[:128]))

    nl.fori_loop(0, 2, trip)
    sums(out[2 * 128 :], load(a[:128]), load(a[128:]))


def dynamic(a: Any, out: Any) -> None:
    """Sources that are known at run time only."""
    zero = sbuf((1, 1), nl.int32)
    nisa.memset(dst=zero, value=0)
    for number in range(4):
        x = sbuf()
        nisa.dma_copy(dst=x, src=a.ap([[16, 128], [1, 16]], offset=0, scalar_offset=zero, indirect_dim=0))
        sums(out[number * 128 :], x)


def ordered(a: Any, out: Any) -> None:
    """The kernel says in which order it loads."""
    with nl.no_reorder():
        x, y = load(a[:128]), load(a[:128])
    sums(out, x, y, load(a[:128]), load(a[:128]))


def across_an_order(a: Any, out: Any) -> None:
    """A part whose order is the kernel's own stands between the loads."""
    x = load(a[:128])
    with nl.no_reorder():
        sums(out, x, x)
    sums(out[2 * 128 :], load(a[:128]), load(a[:128]))


def placed(a: Any, out: Any) -> None:
    """Tiles at addresses of the kernel."""
    tiles = [nl.ndarray(TILE, nl.float32, buffer=nl.sbuf, address=(0, 4096 + 64 * number)) for number in range(4)]
    sums(out, *(load(a[:128], tile) for tile in tiles))


def parts(a: Any, out: Any) -> None:
    """A tile that is filled in two halves."""
    tiles = []
    for _ in range(4):
        tile = sbuf()
        load(a[:64], tile[0:64])
        load(a[64:128], tile[64:128])
        tiles.append(tile)
    sums(out, *tiles)


def unread(a: Any, out: Any) -> None:
    """Nobody looks at what the repeated loads bring."""
    sums(out, *[load(a[:128])] * 4)
    load(a[:128])
    load(a[:128])


CASES: dict[str, tuple[Callable[[Any, Any], Any], int, int]] = {
    # loads as they are written, and that are done
    "stored": (stored, 4, 3),
    "stored elsewhere": (stored_elsewhere, 2, 1),
    "changed": (changed, 4, 3),
    "refilled": (refilled, 4, 2),
    "looped": (looped, 4, 3),
    "in a loop": (in_a_loop, 4, 3),
    "dynamic": (dynamic, 4, 4),
    "ordered": (ordered, 4, 3),
    "across an order": (across_an_order, 3, 2),
    "placed": (placed, 4, 4),
    "parts": (parts, 8, 8),
    "unread": (unread, 3, 3),
}


def bytes_of(programs: list[Program], *arrays: np.ndarray) -> list[bytes]:
    copies = [np.array(array) for array in arrays]
    found = run_adversely(programs, copies, TRN2, Policy(), Options())
    return [result.tobytes() for result in found] + [copy.tobytes() for copy in copies]


@together("setting", IMITATE)
@pytest.mark.parametrize("name", CASES)
def test_loads_are_left_out_only_where_nothing_differs(name: str, setting: str) -> None:
    change, written, done = CASES[name]
    before = traced(around(change), A)[0]
    result = keep_loads.run(before, Context(TRN2, Options(imitate=setting)))
    assert (loads(before), loads(result.program)) == (written, done)
    assert sum(load.loads for load in result.kept) == written - done
    assert bytes_of([before], A) == bytes_of([result.program], A)


def met(a: Any) -> Any:
    """The other core writes to the tensor before the cores meet, and both load it before and after."""
    shared = nl.ndarray((2 * 128, 16), a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((4 * 128, 16), a.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    nisa.dma_copy(dst=shared[core * 128 : (core + 1) * 128], src=load(a[core * 128 : (core + 1) * 128]))
    nisa.core_barrier(data=shared, cores=(0, 1))
    first = load(shared[(1 - core) * 128 : (2 - core) * 128])
    nisa.core_barrier(data=shared, cores=(0, 1))
    doubled = sbuf()
    nisa.tensor_scalar(dst=doubled, data=load(a[core * 128 : (core + 1) * 128]), op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=shared[core * 128 : (core + 1) * 128], src=doubled)
    nisa.core_barrier(data=shared, cores=(0, 1))
    second = load(shared[(1 - core) * 128 : (2 - core) * 128])
    sums(out[core * 2 * 128 :], first, second)
    return out


@pytest.mark.parametrize("setting", IMITATE)
def test_what_another_core_writes_is_loaded_again_after_the_cores_met(setting: str) -> None:
    before = traced(met, A, lnc=2)
    context = Context(TRN2, Options(imitate=setting))
    after = [keep_loads.run(program, context).program for program in before]
    assert [loads(program) for program in before] == [4, 4]
    assert [loads(program) for program in after] == [4, 4]
    assert bytes_of(list(before), A) == bytes_of(after, A)


def rounds(a: Any, sizes: list[int]) -> Any:
    """A tile, others of so many bytes of a partition, and the tile again."""
    out = nl.ndarray((4 * 128, 16), a.dtype, buffer=nl.shared_hbm)
    sums(out, load(a[:128]))
    for size in sizes:
        nisa.memset(dst=sbuf((128, size), nl.uint8), value=0)
    sums(out[128:], load(a[:128]))
    return out


@pytest.mark.parametrize("over", [0, 1])
def test_a_copy_stays_until_the_ring_comes_round(over: int) -> None:
    """Its own 64 bytes and the result's count as well: with half of SBUF in all it is there, with a byte more gone."""
    ring = int(imitation("vendor").kept_loads * TRN2.sbuf.usable_bytes_per_partition)
    assert 99 * 1024 <= ring <= 119 * 1024, "what the measured times of products allow"
    sizes = [40_000, 50_000]
    sizes.append(ring - sum(sizes) - 2 * 64 + over)
    program = traced(rounds, A, sizes)[0]
    assert loads(keep_loads.run(program, Context(TRN2)).program) == 1 + over
    assert loads(keep_loads.run(program, Context(TRN2, Options(imitate="none"))).program) == 1


def product(lhs: Any, rhs: Any) -> Any:
    """A product of tiles that loads both operands for every step."""
    (steps, rows), columns = (size // 128 for size in lhs.shape), rhs.shape[1] // 512
    out = nl.ndarray((lhs.shape[1], rhs.shape[1]), lhs.dtype, buffer=nl.shared_hbm)
    for m, n in [(m, n) for m in range(rows) for n in range(columns)]:
        total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        for k in range(steps):
            left = load(lhs[k * 128 : (k + 1) * 128, m * 128 : (m + 1) * 128])
            nisa.nc_matmul(
                dst=total, stationary=left, moving=load(rhs[k * 128 : (k + 1) * 128, n * 512 : (n + 1) * 512])
            )
        done = sbuf((128, 512), lhs.dtype)
        nisa.tensor_copy(dst=done, src=total)
        nisa.dma_copy(dst=out[m * 128 : (m + 1) * 128, n * 512 : (n + 1) * 512], src=done)
    return out


@pytest.mark.parametrize(
    ("shape", "derived"),
    [((4096, 256, 2048), 390), ((6144, 256, 4096), 1157), ((1280, 640, 2560), 200)],
)
def test_products_do_as_many_loads_as_their_measured_times_tell(shape: tuple[int, int, int], derived: int) -> None:
    """As published: each load and store takes 0.65 us, so that the time tells how many there were (2 % of error)."""
    k, m, n = shape
    dtype = ml_dtypes.bfloat16
    program = traced(product, np.zeros((k, m), dtype), np.zeros((k, n), dtype))[0]
    assert loads(keep_loads.run(program, Context(TRN2)).program) == pytest.approx(derived, rel=0.02)


def test_the_report_of_a_call_lists_each_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("NKI_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NKI_CACHE", raising=False)
    for origin in ("compiled", "disk"):
        kernel = nki.jit(refilled_kernel)
        kernel(A)
        report = kernel.report
        assert report is not None and report.compiled == origin
        (load,) = report.kept_loads
        assert (load.source, load.loads, load.nbytes) == ("a", 2, 2 * 128 * 16 * 4)
        assert str(load.location.frame).split(":")[0].endswith("test_keep_loads.py")
        assert "2 loads left out" in str(report)
        assert report.to_json()["kept_loads"][0]["loads"] == 2


def refilled_kernel(a: Any) -> Any:
    out = nl.ndarray((4 * 128, 16), a.dtype, buffer=nl.shared_hbm)
    refilled(a, out)
    return out

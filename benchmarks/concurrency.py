"""Threads that call models and kernels at once: how many calls, wrong results, and whether memory grows.

Threads call the same model, then different ones (a product with a softmax, a loop on the device, a kernel), a third of
the time each. Every result is compared bit by bit with that of a single thread, and that one with NumPy. Memory is that
of the process, after the first tenth of a phase and at its end. Bounds that the project aims for: no wrong result, and
no growth beyond 16 MiB: ``python benchmarks/concurrency.py [SECONDS] [THREADS]``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.graph.compile import compile_module

ALLOWED_MIB = 16
_MIB = 1 << 20
_SEEDS = 4

ATTENTION = """
func.func @main(%x: tensor<64x96xf32>, %w: tensor<96x128xf32>) -> tensor<64x128xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<64x96xf32>, tensor<96x128xf32>) -> tensor<64x128xf32>
  %1 = stablehlo.reduce(%0 init: %low) applies stablehlo.maximum across dimensions = [1]
      : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<64x128xf32>
  %4 = stablehlo.exponential %3 : tensor<64x128xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<64xf32>) -> tensor<64x128xf32>
  %7 = stablehlo.divide %4, %6 : tensor<64x128xf32>
  return %7 : tensor<64x128xf32>
}
"""

LOOP = """
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %most = stablehlo.constant dense<20> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : tensor<64x64xf32>
  %i, %r = stablehlo.while(%a = %zero, %b = %x) : tensor<i32>, tensor<64x64xf32>
    cond {
      %c = stablehlo.compare LT, %a, %most : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %n = stablehlo.add %a, %one : tensor<i32>
      %p = stablehlo.multiply %b, %half : tensor<64x64xf32>
      %q = stablehlo.add %p, %half : tensor<64x64xf32>
      stablehlo.return %n, %q : tensor<i32>, tensor<64x64xf32>
    }
  return %r : tensor<64x64xf32>
}
"""

Arrays = tuple[np.ndarray, ...]
Call = Callable[..., np.ndarray]


@nki.jit
def shifted(a):  # type: ignore[no-untyped-def]
    """``2 a + 1``, row blocks of 128."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        tile = nl.ndarray((128, a.shape[1]), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[start : start + 128])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
        nisa.dma_copy(dst=out[start : start + 128], src=tile)
    return out


@dataclass(frozen=True, slots=True)
class Case:
    """What a thread calls: `expected` is NumPy's result for the arrays that `make` draws."""

    name: str
    call: Call
    make: Callable[[np.random.Generator], Arrays]
    expected: Call


@dataclass(slots=True)
class Tally:
    """What became of a phase."""

    calls: int = 0
    wrong: int = 0
    errors: int = 0
    start_mib: float = 0.0
    end_mib: float = 0.0

    @property
    def grown_mib(self) -> float:
        """Memory that the process has more at the end."""
        return self.end_mib - self.start_mib


def cases() -> list[Case]:
    """Two models and a kernel."""
    attention = compile_module(ATTENTION, name="attention")
    loop = compile_module(LOOP, name="loop")

    def softmax(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        product = np.asarray(x, np.float64) @ w
        powers = np.exp(product - product.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    return [
        Case(
            "attention",
            lambda *arrays: attention.run(arrays)[0],
            lambda draw: (draw.random((64, 96), np.float32), draw.random((96, 128), np.float32)),
            softmax,
        ),
        Case(
            "loop",
            lambda *arrays: loop.run(arrays)[0],
            lambda draw: (draw.random((64, 64), np.float32),),
            lambda x: x * 0.5**20 + (1 - 0.5**20),
        ),
        Case(
            "kernel",
            lambda *arrays: np.asarray(shifted(*arrays)),
            lambda draw: (draw.random((256, 512), np.float32),),
            lambda a: 2 * a + 1,
        ),
    ]


def phase(called: Sequence[Case], seconds: float) -> Tally:
    """One thread for each case, which calls it until the time is over."""
    wanted = {case.name: [_alone(case, seed) for seed in range(_SEEDS)] for case in called}
    found, lock = Tally(), threading.Lock()
    started = time.monotonic()

    def work(case: Case) -> None:
        calls = wrong = errors = 0
        while time.monotonic() < started + seconds:
            arrays, expected = wanted[case.name][calls % _SEEDS]
            calls += 1
            try:
                wrong += case.call(*arrays).tobytes() != expected.tobytes()
            except Exception as error:  # noqa: BLE001 - counted, and shown
                errors += 1
                print(f"{case.name}: {type(error).__name__}: {error}", file=sys.stderr)
        with lock:
            found.calls, found.wrong, found.errors = found.calls + calls, found.wrong + wrong, found.errors + errors

    threads = [threading.Thread(target=work, args=(case,)) for case in called]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 10)
    found.start_mib = resident_mib()
    for thread in threads:
        thread.join()
    found.end_mib = resident_mib()
    return found


def _alone(case: Case, seed: int) -> tuple[Arrays, np.ndarray]:
    """Arrays, and the result of a single thread for them, which is NumPy's."""
    arrays = case.make(np.random.default_rng(seed))
    result = case.call(*arrays)
    np.testing.assert_allclose(result, case.expected(*arrays), rtol=1e-5, atol=1e-6)
    return arrays, result


def resident_mib() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / _MIB


def main() -> int:
    """Both phases; 1 if something was wrong."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    known = cases()
    phases = {"the same model": [known[0]] * threads, "different ones": [known[n % len(known)] for n in range(threads)]}
    phases["a loop and a kernel"] = known[1:]
    print(f"{threads} threads, {seconds:g} s       calls   wrong  errors   MiB start     end   grown")
    failed = False
    for name, called in phases.items():
        tally = phase(called, seconds / len(phases))
        failed |= bool(tally.wrong or tally.errors) or tally.grown_mib > ALLOWED_MIB
        memory = f"{tally.start_mib:11.1f} {tally.end_mib:7.1f} {tally.grown_mib:7.1f}"
        print(f"{name:20} {tally.calls:10,} {tally.wrong:7} {tally.errors:7} {memory}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

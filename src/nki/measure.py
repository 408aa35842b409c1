"""``nki.profile`` and ``nki.benchmark``: a kernel in time on a target, by the timing model and without a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from nki.core.errors import LaunchError
from nki.core.html import html_table
from nki.core.names.removed_table import MIGRATE
from nki.driver.compiled import Cache
from nki.driver.measure import profile_of
from nki.driver.prepare import prepare
from nki.frontend.host import take, take_shape
from nki.kernel import Kernel, alone, kernel_of
from nki.profiling.evidence import known_error

if TYPE_CHECKING:
    from nki.profiling.record import Profile

_MODES = ("device", "host")


@alone
def profile(kernel: Any = None, *, run: bool = False, **older: Any) -> Profiler:
    """What a call of the kernel takes on the target, and why: ``nki.profile(kernel)(a, b).summary()``.

    The kernel is checked and compiled. It does not run, so that only shapes and dtypes of the arrays count, for which
    `nki.ShapeDtype`s will do, and loops whose trips depend on data count as one trip, which the profile says.

    Args:
        kernel: a kernel, ``kernel[lnc]``, or a plain function. The result can be subscripted as well.
        run: run it on copies of the arrays if it has such loops, and count their trips.
        older: keywords of the first NKI, which are refused.

    Raises:
        LaunchError: no kernel (``jit.function``), its arguments as well (``jit.called``), or another keyword
            (``profile.argument``).
    """
    if older:
        raise LaunchError(
            "profile.argument",
            f"nki.profile({', '.join(f'{name}={value!r}' for name, value in older.items())})"[:200],
            rule="the keyword of nki.profile is run",
            fix=f"write nki.profile(kernel)(arguments).save(folder); {MIGRATE}",
        )
    return Profiler(kernel_of("nki.profile", kernel), run=run)


@overload
def benchmark(
    kernel: Callable[..., Any], *, warmup_iter: int = ..., benchmark_iter: int = ..., mode: str = ...
) -> Benchmark: ...
@overload
def benchmark(
    kernel: None = None, *, warmup_iter: int = ..., benchmark_iter: int = ..., mode: str = ...
) -> Callable[[Callable[..., Any]], Benchmark]: ...
@alone
def benchmark(
    kernel: Any = None, *, warmup_iter: int = 5, benchmark_iter: int = 5, mode: str = "device", **older: Any
) -> Any:
    """How long a call of the kernel takes: ``nki.benchmark(kernel)(a, b).mean_ms``.

    Args:
        kernel: a kernel, ``kernel[lnc]``, or a plain function. The result, a `Benchmark`, can be subscripted as well.
            Without one the result takes it: ``@nki.benchmark(benchmark_iter=10)``.
        warmup_iter: calls before the first that counts.
        benchmark_iter: calls that count, at least 1.
        mode: "device" for the time on the target by the timing model, the same in every iteration and without running
            anything; "host" for the wall time of running the kernel on this machine, which tells nothing of a device.
        older: keywords of earlier versions, which are refused.

    Raises:
        LaunchError: numbers of iterations or a mode that cannot be, or another keyword (``benchmark.argument``);
            no kernel (``jit.function``), or its arguments as well (``jit.called``).
    """
    if older:
        raise LaunchError(
            "benchmark.argument",
            f"nki.benchmark({', '.join(f'{name}={value!r}' for name, value in older.items())})"[:200],
            rule="the keywords of nki.benchmark are warmup_iter, benchmark_iter and mode",
            fix="write result = nki.benchmark(kernel, warmup_iter=5, benchmark_iter=10)(arguments), and result.mean_ms"
            + (f"; {MIGRATE}" if older.keys() & _FIRST_NKI else ""),
        )
    if mode.__class__ is not str or mode not in _MODES or not (_counts(benchmark_iter, 1) and _counts(warmup_iter, 0)):
        raise LaunchError(
            "benchmark.argument",
            f"nki.benchmark(warmup_iter={warmup_iter!r}, benchmark_iter={benchmark_iter!r}, mode={mode!r})"[:200],
            rule='mode is "device" or "host", benchmark_iter is at least 1, warmup_iter at least 0',
            fix="leave them out for the defaults",
        )

    def of(found: Any) -> Benchmark:
        return Benchmark(kernel_of("nki.benchmark", found), warmup_iter, benchmark_iter, mode)

    return of if kernel is None else of(kernel)


_FIRST_NKI = {"additional_compile_opt", "iters", "save_neff_name", "save_trace_name", "warmup"}
"""Keywords of nki.benchmark in the first NKI."""


def _counts(value: Any, least: int) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and least <= int(value) < 1 << 31


class Profiler:
    """What `profile` returns: call it as the kernel."""

    def __init__(self, kernel: Kernel, cache: Cache | None = None, run: bool = False) -> None:
        self._kernel, self._run = kernel, run
        self._cache: Cache = {} if cache is None else cache

    def __repr__(self) -> str:
        return f"<nki.profile({self._kernel.func.__name__}): call it with the arguments of the kernel>"

    def __getitem__(self, lnc: Any) -> Profiler:
        """This profiler on `lnc` cores."""
        return Profiler(self._kernel[lnc], self._cache, self._run)

    def __call__(self, *args: Any, **kwargs: Any) -> Profile:
        see = take if self._run else take_shape
        prepared = prepare(self._kernel, args, kwargs, mode="compiled", cache=self._cache, see=see)
        return profile_of(prepared, self._run)


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Times in ms; the first seven have the names and meaning of ``nrtpy.BenchmarkResult``.

    Attributes:
        mean_ms, min_ms, max_ms, std_dev_ms: over the iterations.
        iterations, warmup_iterations: numbers of calls.
        durations_ms: of each iteration.
        mode: "device" or "host".
        is_simulation: always True: no device was used.
        validated: whether the timing model of the target was compared with published measurements.
        target: name of the target.
        kernel_ms: on the device, without what a launch adds.
        launch_ms: what a launch adds.
        bound_by: the unit that works longest.
        lower_bound_ms: no schedule of these instructions is faster.
        roofline_ms: no kernel is faster that moves every input and result once and does the same matmuls.
        profile: where the time goes.
    """

    mean_ms: float
    min_ms: float
    max_ms: float
    std_dev_ms: float
    iterations: int
    warmup_iterations: int
    durations_ms: list[float]
    mode: str
    is_simulation: bool
    validated: bool
    target: str
    kernel_ms: float
    launch_ms: float
    bound_by: str
    lower_bound_ms: float
    roofline_ms: float
    profile: Profile

    def __str__(self) -> str:
        return (
            f"{self.mode}: mean {self.mean_ms:.4f} ms (min {self.min_ms:.4f}, max {self.max_ms:.4f}, "
            f"{self.iterations} iterations); {self.target}: kernel {self.kernel_ms:.4f} ms + launch "
            f"{self.launch_ms:.4f} ms, bound by {self.bound_by}, lower bound {self.lower_bound_ms:.4f} ms, roofline "
            f"{self.roofline_ms:.4f} ms ({self._known})"
        )

    @property
    def _known(self) -> str:
        """What is known of how far off the time of the kernel may be."""
        return known_error(self.target, self.validated, self.profile.about.accuracy)

    def _repr_html_(self) -> str:
        rows = [
            ("mean", f"{self.mean_ms:.4f} ms"),
            ("least, most", f"{self.min_ms:.4f}, {self.max_ms:.4f} ms in {self.iterations} iterations"),
            ("kernel", f"{self.kernel_ms:.4f} ms, and a launch adds {self.launch_ms:.4f} ms"),
            ("bound by", self.bound_by),
            ("lower bound", f"{self.lower_bound_ms:.4f} ms; roofline {self.roofline_ms:.4f} ms"),
        ]
        title = f"{self.profile.about.kernel} on {self.target}, {self.mode}"
        return html_table(title, rows, notes=[self._known])


class Benchmark:
    """What `benchmark` returns: call it as the kernel."""

    def __init__(self, kernel: Kernel, warmup_iter: int, benchmark_iter: int, mode: str) -> None:
        self._kernel, self._mode = kernel, mode
        self._warmup, self._count = warmup_iter, benchmark_iter

    def __getitem__(self, lnc: Any) -> Benchmark:
        """This benchmark on `lnc` cores."""
        return Benchmark(self._kernel[lnc], self._warmup, self._count, self._mode)

    def __call__(self, *args: Any, **kwargs: Any) -> BenchmarkResult:
        found = Profiler(self._kernel)(*args, **kwargs)
        about = found.about
        if self._mode == "device":
            durations = [(about.makespan_ns + about.launch_ns) / 1e6] * self._count
        else:
            durations = self._wall(lambda: self._kernel(*args, **kwargs))
        slowest = max(about.totals, key=lambda totals: totals["makespan_ns"])
        bounds = slowest["bounds"]
        return BenchmarkResult(
            # exact, so that equal durations have that mean
            mean_ms=statistics.mean(durations),
            min_ms=min(durations),
            max_ms=max(durations),
            std_dev_ms=statistics.pstdev(durations),
            iterations=self._count,
            warmup_iterations=self._warmup,
            durations_ms=durations,
            mode=self._mode,
            is_simulation=True,
            validated=about.validated,
            target=about.target,
            kernel_ms=about.makespan_ns / 1e6,
            launch_ms=about.launch_ns / 1e6,
            bound_by=slowest["bound_by"],
            lower_bound_ms=bounds["dependences"] / 1e6,
            roofline_ms=bounds["roofline"] / 1e6,
            profile=found,
        )

    def _wall(self, run: Callable[[], object]) -> list[float]:
        for _ in range(self._warmup):
            run()
        durations = []
        for _ in range(self._count):
            start = time.perf_counter()
            run()
            durations.append((time.perf_counter() - start) * 1e3)
        return durations

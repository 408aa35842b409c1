"""``nki.benchmark``, ``nki.profile`` and ``nki.baremetal`` of the first NKI: times are those of the timing model."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nki.beta1.errors import refused
from nki.beta1.kernel import Beta1Kernel, kernel_of
from nki.frontend.host import ShapeDtype
from nki.measure import Profiler
from nki.profiling.record import Profile

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)


class Latency:
    """Latencies of a kernel on the device, in microseconds."""

    def __init__(self, microseconds: float) -> None:
        self._microseconds = microseconds

    def get_latency_percentile(self, percentile: int) -> float:
        """A percentile in us: 0, 1, 10, 25, 50, 90, 99 or 100. The timing model gives one time, so all are equal."""
        if percentile not in PERCENTILES:
            raise refused(
                "argument", f"percentile {percentile!r}", f"ask for one of {', '.join(map(str, PERCENTILES))}"
            )
        return self._microseconds


class BenchmarkResult:
    """What was measured.

    Attributes:
        nc_latency: latencies on the device.
        profile: where the time goes.
    """

    def __init__(self, profile: Profile) -> None:
        about = profile.about
        self.nc_latency = Latency((about.makespan_ns + about.launch_ns) / 1e3)
        self.profile = profile


class Measured:
    """A kernel that is timed when it is called; its results are those of the kernel, if there are arrays.

    Attributes:
        benchmark_result: of the last call; None before the first one.
    """

    def __init__(self, kernel: Beta1Kernel, after: Callable[[Profile], None]) -> None:
        functools.update_wrapper(self, kernel.func)
        self.kernel = kernel
        self.benchmark_result: BenchmarkResult | None = None
        self._after = after

    def __getitem__(self, grid: Any) -> Measured:
        return Measured(self.kernel[grid], self._after)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        profile = Profiler(self.kernel)(*args, **kwargs)
        self.benchmark_result = BenchmarkResult(profile)
        self._after(profile)
        without_values = any(isinstance(each, ShapeDtype) for each in (*args, *kwargs.values()))
        return None if without_values else self.kernel(*args, **kwargs)


def benchmark(
    kernel: Any = None,
    *,
    warmup: int = 10,
    iters: int = 100,
    save_neff_name: str | None = None,
    save_trace_name: str | None = None,
    additional_compile_opt: str | None = None,
    device_count: int = 1,
) -> Any:
    """A kernel whose calls are timed: ``f.benchmark_result.nc_latency.get_latency_percentile(50)`` in microseconds.

    Args:
        warmup, iters: calls on the device before the first one that counts, and those that count; the timing model
            gives the same time for each.
        save_trace_name: a folder that `nki explorer` opens is written there.
        save_neff_name, additional_compile_opt, device_count: of the device's compiler, which is not used.
    """
    _unused(save_neff_name=save_neff_name, additional_compile_opt=additional_compile_opt)

    def tell(profile: Profile) -> None:
        about = profile.about
        latency = (about.makespan_ns + about.launch_ns) / 1e3
        _tell(f"{about.kernel} on {about.target}: {latency:.2f} us by the timing model, in each of {iters} iterations")
        _save(profile, save_trace_name)

    return _decorated(kernel, lambda found: Measured(found, tell))


def profile(
    func: Any = None,
    *,
    working_directory: str | None = None,
    save_neff_name: str | None = None,
    save_trace_name: str | None = "profile.ntff",
    additional_compile_opt: str | None = None,
    overwrite: bool = False,
    profile_nth: int = 1,
    num_execs: int = 1,
) -> Any:
    """A kernel whose calls write a profile into a folder, which `nki explorer` opens.

    Args:
        working_directory: an absolute path.
        overwrite: whether a profile that is there may be replaced.
        profile_nth, num_execs: which execution is profiled, of how many; all take the same time.
    """
    if working_directory is None or not Path(working_directory).is_absolute():
        raise refused("argument", f"nki.profile got working_directory={working_directory!r}", "pass an absolute path")
    _unused(save_neff_name=save_neff_name, additional_compile_opt=additional_compile_opt)
    place = Path(working_directory) / Path(save_trace_name or "profile").stem
    if place.exists() and not overwrite:
        raise refused("argument", f"{place} exists", "pass overwrite=True, or another working_directory")
    return _decorated(func, lambda found: Measured(found, lambda made: _save(made, str(place))))


def baremetal(
    kernel: Any = None,
    *,
    save_neff_name: str | None = None,
    save_trace_name: str | None = None,
    additional_compile_opt: str | None = None,
    artifacts_dir: str | None = None,
) -> Any:
    """A kernel that is called with NumPy arrays.

    Args:
        save_trace_name: a folder that `nki explorer` opens is written there.
        save_neff_name, additional_compile_opt, artifacts_dir: of the device's compiler, which is not used.
    """
    _unused(save_neff_name=save_neff_name, additional_compile_opt=additional_compile_opt, artifacts_dir=artifacts_dir)
    if save_trace_name is None:
        return _decorated(kernel, lambda found: found)
    return _decorated(kernel, lambda found: Measured(found, lambda made: _save(made, save_trace_name)))


def _decorated(kernel: Any, wrap: Callable[[Beta1Kernel], Any]) -> Any:
    def decorate(found: Any) -> Any:
        return wrap(kernel_of(found))

    return decorate if kernel is None else decorate(kernel)


def _save(profile: Profile, place: str | None) -> None:
    if place is not None:
        profile.save(Path(place).with_suffix(""))


def _unused(**given: Any) -> None:
    """Tell of options of the device's compiler."""
    for name, value in given.items():
        if value is not None:
            _tell(f"{name}={value!r} is for the device's compiler, which is not used here")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")

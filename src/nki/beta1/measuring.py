"""``nki.benchmark``, ``nki.profile`` and ``nki.baremetal`` of the first NKI: times are those of the timing model.

A file ``.neff`` is one that `nki run` runs. A trace is a folder of that name, which `nki explorer` opens: the format of
the device's traces is not public.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nki.beta1.errors import refused
from nki.beta1.kernel import Beta1Kernel, kernel_of
from nki.driver.compile import compiled
from nki.driver.compiled import Compiled
from nki.driver.prepare import prepare
from nki.frontend.host import ShapeDtype, take_shape
from nki.measure import Profiler
from nki.profiling.record import Profile
from nki.store.artifact.container import pack, save

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

    def __init__(self, kernel: Beta1Kernel, after: Callable[[Profile, Compiled], None]) -> None:
        functools.update_wrapper(self, kernel.func)
        self.kernel = kernel
        self.benchmark_result: BenchmarkResult | None = None
        self._after = after

    def __getitem__(self, grid: Any) -> Measured:
        return Measured(self.kernel[grid], self._after)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        without_values = any(isinstance(each, ShapeDtype) for each in (*args, *kwargs.values()))
        profile = Profiler(self.kernel, run=not without_values)(*args, **kwargs)
        self.benchmark_result = BenchmarkResult(profile)
        self._after(profile, self._compiled(args, kwargs))
        return None if without_values else self.kernel(*args, **kwargs)

    def _compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
        """What the call runs, or would run on a device."""
        return compiled(prepare(self.kernel, args, kwargs, mode="compiled", cache=self.kernel.cache, see=take_shape))


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
        save_neff_name, save_trace_name: files that are written, if given.
        additional_compile_opt, device_count: of the device's compiler and of devices, which are not used; that is told.
    """
    _unused(additional_compile_opt=additional_compile_opt, device_count=None if device_count == 1 else device_count)

    def tell(profile: Profile, made: Compiled) -> None:
        about = profile.about
        latency = (about.makespan_ns + about.launch_ns) / 1e3
        _tell(f"{about.kernel} on {about.target}: {latency:.2f} us by the timing model, in each of {iters} iterations")
        _save_neff(made, save_neff_name)
        _save(profile, save_trace_name)

    return _decorated(kernel, lambda found: Measured(found, tell))


def profile(
    func: Any = None,
    *,
    working_directory: str | None = None,
    save_neff_name: str = "file.neff",
    save_trace_name: str = "profile.ntff",
    additional_compile_opt: str | None = None,
    overwrite: bool = False,
    profile_nth: int = 1,
    num_execs: int = 1,
) -> Any:
    """A kernel whose calls write to a folder: the compiled kernel, its trace, and ``json_reports`` with summaries.

    Args:
        working_directory: an absolute path.
        save_neff_name, save_trace_name: names in it; the trace of a later execution n is ``NAME_exec_n.ntff``.
        overwrite: whether traces that are there may be replaced.
        profile_nth, num_execs: every so many of so many executions is profiled; all take the same time.
    """
    if working_directory is None or not Path(working_directory).is_absolute():
        raise refused("argument", f"nki.profile got working_directory={working_directory!r}", "pass an absolute path")
    _unused(additional_compile_opt=additional_compile_opt)
    folder, stem = Path(working_directory), Path(save_trace_name).stem
    executions = range(profile_nth, max(num_execs, profile_nth) + 1, profile_nth)
    names = {n: f"{stem}.ntff" if n == 1 else f"{stem}_exec_{n}.ntff" for n in executions}

    def write(found: Profile, made: Compiled) -> None:
        taken = [folder / name for name in names.values() if (folder / name).exists()]
        if taken and not overwrite:
            raise refused("argument", f"{taken[0]} exists", "pass overwrite=True, or another working_directory")
        reports = folder / "json_reports"
        reports.mkdir(parents=True, exist_ok=True)
        _save_neff(made, str(folder / save_neff_name))
        for execution, name in names.items():
            found.save(folder / name)
            (reports / f"{stem}_exec_{execution}.json").write_text(json.dumps(found.to_json()), encoding="utf-8")

    return _decorated(func, lambda found: Measured(found, write))


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
        save_neff_name, save_trace_name: files that are written, if given.
        additional_compile_opt, artifacts_dir: of the device's compiler, which is not used.
    """
    _unused(additional_compile_opt=additional_compile_opt, artifacts_dir=artifacts_dir)
    if save_trace_name is None and save_neff_name is None:
        return _decorated(kernel, lambda found: found)

    def write(found: Profile, made: Compiled) -> None:
        _save_neff(made, save_neff_name)
        _save(found, save_trace_name)

    return _decorated(kernel, lambda found: Measured(found, write))


def _decorated(kernel: Any, wrap: Callable[[Beta1Kernel], Any]) -> Any:
    def decorate(found: Any) -> Any:
        return wrap(kernel_of(found))

    return decorate if kernel is None else decorate(kernel)


def _save(profile: Profile, place: str | None) -> None:
    if place is not None:
        profile.save(Path(place))


def _save_neff(made: Compiled, place: str | None) -> None:
    """The compiled kernel as a file."""
    if place is not None:
        save(Path(place), pack(made.programs, kernel_hash=made.kernel_hash))


def _unused(**given: Any) -> None:
    """Tell of options of the device's compiler."""
    for name, value in given.items():
        if value is not None:
            _tell(f"{name}={value!r} is for the device's compiler, which is not used here")


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")

"""``@nki.autotune``: a kernel that chooses among configurations when it is called, by the timing model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.kernel import Kernel
from nki.tune.config import Config, read_configs
from nki.tune.settings import Settings
from nki.tune.tuned_kernel import TunedKernel


def autotune(
    *kernels: Any,
    configs: Any = (),
    key: Sequence[str] | None = None,
    budget: int | None = None,
    tolerance: float | None = None,
    processes: int | None = None,
    timeout: float | None = None,
    executor: Executor | None = None,
    pinned: str | Path | None = None,
) -> Callable[[Any], TunedKernel]:
    """Decorator: choose among configurations of a kernel by the timing model of the target.

    At the first call with other shapes or dtypes every configuration is traced, those that may be fastest are timed as
    `nki.predict` times them, and the fastest one is run on copies of the call's arrays: its results must be those of
    the default configuration, which is the kernel without any, or the first one if the kernel has no defaults for what
    they set. No configuration that is refused or computes something else is ever chosen.

    Args:
        kernels: nothing; a kernel belongs to what this returns, as ``@nki.autotune(configs=[...])`` does.
        configs: a list of dicts or `nki.Config`: keyword arguments of the kernel, ``lnc``, ``compile_config``.
        key: parameters whose shapes and dtypes, or values, choose an entry; all that no configuration sets by default.
        budget: how many configurations are timed at most, beside the default one; those with the smallest lower
            bounds are. None for no limit.
        tolerance: largest difference from the default's results, relative to an element or to the root mean square of
            the array, whichever is larger. By default 1e-4 for 32-bit floats, four units in the last place of narrower
            ones, and 0 for integers.
        processes: that ask the timing model at the same time; 1 for the caller's only. None for that one while its
            answers come quickly, and then for as many as there are processors.
        timeout: seconds that one answer about a configuration may take, in a process of its own; a configuration that
            takes longer has failed. None for no limit.
        executor: asks the timing model in place of those processes: any `concurrent.futures.Executor`, such as a pool
            of threads or processes, or ``client.get_executor()`` of `dask.distributed`. It is not shut down.
        pinned: a file of `TunedKernel.pin` or ``nki tune --pin``: its entries are used as they are.

    Raises:
        LaunchError: an argument that cannot be (``tune.argument``, ``tune.executor``, ``tune.config``, ``tune.key``,
            ``tune.pinned``).
    """
    if kernels:
        name = getattr(kernels[0], "__name__", "kernel")
        problem = f"nki.autotune got {name}" + (" and no configurations" if not configs else "")
        rule = "nki.autotune takes the configurations, and what it returns takes the kernel"
        fix = f'write @nki.autotune(configs=[{{"tile": 256}}, {{"tile": 512}}]) above {name}'
        raise LaunchError("tune.config", problem, rule=rule, fix=fix)
    settings = Settings(budget, tolerance, processes, timeout, executor)
    if not (pinned is None or isinstance(pinned, str | Path)):
        raise LaunchError(
            "tune.argument",
            f"nki.autotune(pinned={shown(pinned)})",
            rule="pinned is the name of a file, or None",
            fix="leave pinned out for the default",
        )

    def decorate(kernel: Any) -> TunedKernel:
        made = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
        read = read_configs(configs, made.func)
        file = None if pinned is None else Path(pinned)
        return TunedKernel(made.launch(), read, _checked_key(key, made.func, read), settings, file)

    return decorate


def _checked_key(key: Any, function: Callable[..., Any], configs: tuple[Config, ...]) -> tuple[str, ...] | None:
    if key is None:
        return None
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    chosen = {name for config in configs for name in config.arguments}
    names = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else None
    if names is None or not names or any(name not in parameters or name in chosen for name in names):
        fitting = ", ".join(name for name in parameters if name not in chosen)
        raise LaunchError(
            "tune.key",
            f"nki.autotune(key={shown(key)}) of {function.__name__}",
            rule=f"key names parameters that no configuration sets: {fitting}",
            fix="leave key out: then every shape and dtype has its own entry",
        )
    return names

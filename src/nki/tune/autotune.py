"""``@nki.autotune``: a kernel that chooses among configurations when it is called, by the timing model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from nki.core.errors import LaunchError
from nki.core.shown import shown
from nki.core.source import here
from nki.driver.compiled import Cache
from nki.driver.launch import Launch
from nki.driver.prepare import checked, settled
from nki.frontend.dependencies.arguments import describe
from nki.frontend.dependencies.manifest import Manifest, manifest_of
from nki.frontend.host import kind_of
from nki.frontend.values import bind
from nki.kernel import Kernel
from nki.options import Options
from nki.profiling.evidence import tell_of_unmeasured
from nki.report import warn
from nki.spec.rule import Finding
from nki.spec.sink import active_sink
from nki.target.load import load_target
from nki.tune.config import Config, default_of, read_configs
from nki.tune.job import Caches, Question, TuningJob
from nki.tune.memory import disk_key, from_disk, read_pinned, to_disk, with_origin, write_pinned
from nki.tune.same import host_copies
from nki.tune.search import search
from nki.tune.tuned import Tuned

Done = Callable[[Question, int], None]


def autotune(
    *kernels: Any,
    configs: Any = (),
    key: Sequence[str] | None = None,
    budget: int | None = None,
    tolerance: float | None = None,
    processes: int | None = None,
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
        pinned: a file of `TunedKernel.pin` or ``nki tune --pin``: its entries are used as they are.

    Raises:
        LaunchError: an argument that cannot be (``tune.argument``, ``tune.config``, ``tune.key``, ``tune.pinned``).
    """
    if kernels:
        name = getattr(kernels[0], "__name__", "kernel")
        problem = f"nki.autotune got {name}" + (" and no configurations" if not configs else "")
        rule = "nki.autotune takes the configurations, and what it returns takes the kernel"
        fix = f'write @nki.autotune(configs=[{{"tile": 256}}, {{"tile": 512}}]) above {name}'
        raise LaunchError("tune.config", problem, rule=rule, fix=fix)
    _check("budget", budget, budget is None or (type(budget) is int and budget >= 1), "a number from 1, or None")
    _check("processes", processes, processes is None or (type(processes) is int and processes >= 1), "from 1, or None")
    number = type(tolerance) in (int, float)
    _check("tolerance", tolerance, tolerance is None or (number and 0 <= float(tolerance) < 1), "from 0, or None")
    _check("pinned", pinned, pinned is None or isinstance(pinned, str | Path), "the name of a file, or None")

    def decorate(kernel: Any) -> TunedKernel:
        made = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
        read = read_configs(configs, made.func)
        search_settings = (budget, tolerance)
        return TunedKernel(
            made.launch(), read, _checked_key(key, made.func, read), search_settings, processes, _path(pinned)
        )

    return decorate


class TunedKernel(Kernel):
    """What `autotune` returns: call it as the kernel.

    Attributes:
        func, report, profile: see `nki.jit`.
        tuned: what was found for the last call; None before the first.
    """

    def __init__(
        self,
        launch: Launch,
        configs: tuple[Config, ...],
        key: tuple[str, ...] | None,
        search_settings: tuple[int | None, float | None],
        processes: int | None,
        pinned: Path | None,
    ) -> None:
        super().__init__(launch)
        self.tuned: Tuned | None = None
        default = default_of(configs, self.func)
        self._configs = configs if default.label in {each.label for each in configs} else (default, *configs)
        self._default = [each.label for each in self._configs].index(default.label)
        self._key, self._settings, self._processes = key, search_settings, processes
        self._pinned_file = pinned
        self._pinned = read_pinned(pinned, launch.name, self._configs) if pinned is not None else {}
        self._found: dict[Any, tuple[Manifest, Tuned]] = {}
        self._caches: dict[str, Cache] = {}

    @property
    def configs(self) -> tuple[Config, ...]:
        """The candidates, the default among them."""
        return self._configs

    def __getitem__(self, lnc: Any) -> TunedKernel:
        """This kernel on `lnc` cores, except in configurations that set the number."""
        return self._like(super().__getitem__(lnc).launch())

    def with_schedule(self, edges: list[tuple[str, str | list[str]]]) -> TunedKernel:
        """This kernel with dependencies (`Kernel.with_schedule`), which hold for every configuration."""
        return self._like(super().with_schedule(edges).launch())

    def defvjp(self, forward: Any, backward: Any) -> NoReturn:
        """Refused: what is tuned is run with copies of the arguments, of which no derivative is known."""
        name = self.func.__name__
        raise LaunchError(
            "jit.defvjp",
            f"{name} is tuned, and gets a derivative",
            rule="a kernel that is tuned has no derivative",
            fix=f"give it to the kernel that is called with the winner: @nki.jit def {name}, and {name}.defvjp(...)",
        )

    def _like(self, launch: Launch) -> TunedKernel:
        return TunedKernel(launch, self._configs, self._key, self._settings, self._processes, self._pinned_file)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_sink() is not None:
            raise _nested(self.func.__name__)
        arguments = self._arguments(args, kwargs)
        self.tuned = self._tune(arguments, _nothing)
        tell_of_unmeasured(load_target(self.tuned.target))
        _tell_of_failures(self.tuned)
        config = self._config(self.tuned)
        kernel = self._kernel(config)
        result = kernel(**{**arguments, **config.arguments})
        self.report = kernel.report
        return result

    def tune(self, *args: Any, **kwargs: Any) -> Tuned:
        """What a call would choose, without the call itself; arrays are not changed."""
        tuned = self.tune_watched(args, kwargs, _nothing)
        tell_of_unmeasured(load_target(tuned.target))
        _tell_of_failures(tuned)
        return tuned

    def tune_watched(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], done: Done, options: Options | None = None
    ) -> Tuned:
        """Tune as `tune` does, and call `done` for every candidate whose bound or time is known.

        `options` are those of the environment unless others are given.
        """
        self.tuned = self._tune(self._arguments(args, kwargs), done, options)
        return self.tuned

    def chosen(self, tuned: Tuned) -> tuple[Launch, Mapping[str, Any]]:
        """How the winner is launched, and the arguments that it sets."""
        config = self._config(tuned)
        return config.launch(self._launch), config.arguments

    def searched(self, lnc: int | None, budget: int | None, processes: int | None) -> TunedKernel:
        """This kernel without pinned entries, to be searched with these settings; None leaves a setting as it is."""
        launch = self._launch if lnc is None else super().__getitem__(lnc).launch()
        settings = (self._settings[0] if budget is None else budget, self._settings[1])
        return TunedKernel(launch, self._configs, self._key, settings, processes or self._processes, None)

    def pin(self, file: str | Path) -> None:
        """Write all that was found to a file for ``autotune(pinned=file)``; other entries of the file stay.

        Raises:
            LaunchError: the file holds something else or cannot be written (``tune.pinned``).
        """
        write_pinned(Path(file), [tuned for _, tuned in self._found.values()])

    def simulated(self) -> Kernel:
        """The default configuration, run eagerly."""
        config = self._configs[self._default]
        return Kernel(replace(config.launch(self._launch), eager=True))

    def _arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, without those that configurations set."""
        chosen = {name for config in self._configs for name in config.arguments}
        twice = [name for name in kwargs if name in chosen]
        if not twice:
            default = self._configs[self._default]
            bound = bind(self.func, args, {**default.arguments, **kwargs}, self.func.__name__)
            given = set(list(bound)[: len(args)]) & chosen
            return {name: value for name, value in bound.items() if name not in chosen} if not given else _twice(given)
        return _twice(set(twice))

    def _tune(self, arguments: dict[str, Any], done: Done, options: Options | None = None) -> Tuned:
        options, target = settled(self._launch, options)
        checked(self._launch, options)
        key = ", ".join(_described(name, arguments[name]) for name in self._key or arguments)
        pinned = self._pinned.get((target.name, key))
        if pinned is not None:
            return pinned
        entry = (target.name, key, options)
        known = self._found.get(entry)
        references = (*self._launch.references, *describe(arguments).references)
        if known is not None and known[0].untouched(references):
            return with_origin(known[1], "memory")
        now = manifest_of(self.func, references)
        if known is not None and now.digest and now.digest == known[0].digest:
            self._found[entry] = now, known[1]
            return with_origin(known[1], "memory")
        tuned = self._searched(arguments, key, target.name, options, now, done)
        self._found[entry] = now, tuned
        return tuned

    def _searched(
        self, arguments: dict[str, Any], key: str, target: str, options: Options, now: Manifest, done: Done
    ) -> Tuned:
        shapes = [(host.shape, str(host.dtype)) for host in _arrays(arguments)]
        name = disk_key(
            now, self._launch, self._configs, describe(arguments), shapes, (*self._settings, key), target, options
        )
        found = from_disk(name, self._configs)
        if found is not None:
            return found
        budget, tolerance = self._settings
        caches: Caches = {number: self._cache_of(config) for number, config in enumerate(self._configs)}
        candidates = search(
            TuningJob(self._launch, host_copies(arguments), target, self._configs, options),
            default=self._default,
            budget=budget,
            tolerance=tolerance,
            processes=self._processes,
            caches=caches,
            done=done,
        )
        tuned = Tuned(self._launch.name, target, key, candidates)
        to_disk(name, tuned)
        return tuned

    def _config(self, tuned: Tuned) -> Config:
        return next(each for each in self._configs if each.label == tuned.chosen.label)

    def _kernel(self, config: Config) -> Kernel:
        return Kernel(replace(config.launch(self._launch), eager=self._launch.eager), self._cache_of(config))

    def _cache_of(self, config: Config) -> Cache:
        return self._caches.setdefault(config.label, {})


def _tell_of_failures(tuned: Tuned) -> None:
    """Warn if no configuration but the default can run: then nothing was chosen."""
    others = [each for each in tuned.candidates if not each.default]
    if not others or any(each.state not in ("failed", "wrong") for each in others):
        return
    shown = "; ".join(f"{each.label}: {each.reason}" for each in others[:3])
    finding = Finding(
        "tune.all-failed",
        "warning",
        f"of the configurations of {tuned.kernel} none can run but the default ({tuned.chosen.label}), which is used: "
        f"{shown}{'; ...' if len(others) > 3 else ''}",
        "a configuration is chosen if the kernel compiles with it and computes what the default computes",
        "docs/tuning.md",
        "correct the configurations, or the kernel: nki check tells what is wrong with one of them",
        here(),
        {"configurations": len(others)},
    )
    warn(finding)


def _nothing(question: Question, number: int) -> None:
    """Tell nobody of a candidate."""


def _arrays(value: Any) -> list[Any]:
    if kind_of(value) is not None:
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [array for item in items for array in _arrays(item)]


def _described(name: str, value: Any) -> str:
    """An argument in a key: shapes and dtypes of arrays, other values as they are."""
    if kind_of(value) is not None:
        return f"{name}={str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        return f"{name}={{{', '.join(_described(str(key), item) for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{name}=({', '.join(_described(str(at), item) for at, item in enumerate(value))})"
    return f"{name}={Config({name: value}).label.partition('=')[2]}"


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


def _path(pinned: str | Path | None) -> Path | None:
    return None if pinned is None else Path(pinned)


def _check(name: str, value: Any, well: bool, rule: str) -> None:
    if not well:
        raise LaunchError(
            "tune.argument",
            f"nki.autotune({name}={shown(value)})",
            rule=f"{name} is {rule}",
            fix=f"leave {name} out for the default",
        )


def _twice(names: set[str]) -> dict[str, Any]:
    raise LaunchError(
        "tune.conflict",
        f"the call gives {', '.join(sorted(names))}, which configurations set",
        rule="what a configuration sets is not given by the call",
        fix="leave it out, or call nki.jit(kernel.func) for this value",
    )


def _nested(name: str) -> LaunchError:
    return LaunchError(
        "tune.nested",
        f"{name} chooses its configuration when it is called from Python, and is called from a kernel",
        rule="a kernel that is part of another one is traced with it, where nothing can be timed or run alone",
        fix=f"call {name}.func(...) with the arguments that were chosen, or tune the outer kernel",
    )

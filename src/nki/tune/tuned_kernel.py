"""What `nki.autotune` returns: a kernel that is searched for its fastest configuration when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from nki.core.errors import LaunchError
from nki.core.source import here
from nki.driver.compiled import Cache
from nki.driver.launch import Launch
from nki.driver.prepare import checked, settled
from nki.frontend.dependencies.arguments import describe
from nki.frontend.dependencies.manifest import Manifest, manifest_of
from nki.frontend.values import bind
from nki.kernel import Kernel
from nki.options import Options
from nki.profiling.evidence import tell_of_unmeasured
from nki.report import warn
from nki.spec.rule import Finding
from nki.spec.sink import active_sink
from nki.target.load import load_target
from nki.tune.ask import Done
from nki.tune.config import Config, default_of
from nki.tune.described import arrays, described
from nki.tune.job import Caches, Question, TuningJob
from nki.tune.memory import disk_key, from_disk, read_pinned, to_disk, with_origin, write_pinned
from nki.tune.same import host_copies
from nki.tune.settings import Settings
from nki.tune.shards import Known, Shard, ShardFile, read_shards
from nki.tune.tuned import Tuned
from nki.tune.work import Work


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
        settings: Settings,
        pinned: Path | None,
    ) -> None:
        super().__init__(launch)
        self.tuned: Tuned | None = None
        default = default_of(configs, self.func)
        self._configs = configs if default.label in {each.label for each in configs} else (default, *configs)
        self._default = [each.label for each in self._configs].index(default.label)
        self._key, self._settings = key, settings
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

    def with_executor(self, executor: Executor | None) -> TunedKernel:
        """This kernel, tuned by an executor (see `autotune`), or by this process and its own ones."""
        settings = replace(self._settings, processes=None, timeout=None, executor=executor)
        return TunedKernel(self._launch, self._configs, self._key, settings, self._pinned_file)

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
        return TunedKernel(launch, self._configs, self._key, self._settings, self._pinned_file)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_sink() is not None:
            raise _nested(self.func.__name__)
        arguments = self._arguments(args, kwargs)
        tuned = self.tuned = self._tune(arguments, _nothing)  # ranks in threads tune at the same time
        tell_of_unmeasured(load_target(tuned.target))
        _tell_of_failures(tuned)
        config = self._config(tuned)
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
        tuned = self.tuned = self._tune(self._arguments(args, kwargs), done, options)
        return tuned

    def chosen(self, tuned: Tuned) -> tuple[Launch, Mapping[str, Any]]:
        """How the winner is launched, and the arguments that it sets."""
        config = self._config(tuned)
        return config.launch(self._launch), config.arguments

    def searched(self, lnc: int | None, settings: Settings) -> TunedKernel:
        """This kernel without pinned entries, to be searched with these settings; None leaves one as it is."""
        launch = self._launch if lnc is None else super().__getitem__(lnc).launch()
        own = self._settings
        asked = settings if settings.executor or settings.processes or settings.timeout else own
        merged = replace(asked, budget=settings.budget or own.budget, tolerance=own.tolerance)
        return TunedKernel(launch, self._configs, self._key, merged, None)

    def tune_shard(
        self, kwargs: Mapping[str, Any], shard: Shard, done: Done, options: Options | None = None
    ) -> ShardFile:
        """What one shard of a search finds; nothing is remembered of it.

        Raises:
            LaunchError: what the kernel reads has no value that other jobs could compare (``tune.shard``).
        """
        return self._shardable(kwargs, options).of_shard(shard, done)

    def merge_shards(
        self, kwargs: Mapping[str, Any], folder: Path, done: Done, options: Options | None = None
    ) -> Tuned:
        """What the whole search finds, from the files of all shards; it is remembered.

        Raises:
            LaunchError: files of something else, or not of all shards (``tune.shards``).
        """
        work = self._shardable(kwargs, options)
        expected = ShardFile(work.job.launch.name, work.job.target, work.key, work.digest, Shard(1, 1), Known())
        self.tuned = work.merged(read_shards(folder, expected), done)
        self._found[work.job.target, work.key, work.job.options] = self._manifest(work.job.arguments), self.tuned
        to_disk(work.digest, self.tuned)
        return self.tuned

    def _shardable(self, kwargs: Mapping[str, Any], options: Options | None) -> Work:
        arguments = self._arguments((), kwargs)
        options, target = settled(self._launch, options)
        checked(self._launch, options)
        work = self._work(arguments, target.name, options, self._manifest(arguments))
        if not work.digest:
            raise LaunchError(
                "tune.shard",
                f"shards of {self._launch.name}, which reads or gets something that has no value to compare",
                rule="the shards of a search show that they are of the same kernel and the same call",
                fix="tune it in one process, or by an executor",
            )
        return work

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
        key = self._key_of(arguments)
        pinned = self._pinned.get((target.name, key))
        if pinned is not None:
            return pinned
        entry = (target.name, key, options)
        known = self._found.get(entry)
        references = self._references(arguments)
        if known is not None and known[0].untouched(references):
            return with_origin(known[1], "memory")
        now = manifest_of(self.func, references)
        if known is not None and now.digest and now.digest == known[0].digest:
            self._found[entry] = now, known[1]
            return with_origin(known[1], "memory")
        work = self._work(arguments, target.name, options, now)
        tuned = from_disk(work.digest, self._configs)
        if tuned is None:
            tuned = work.searched(done)
            to_disk(work.digest, tuned)
        self._found[entry] = now, tuned
        return tuned

    def _work(self, arguments: dict[str, Any], target: str, options: Options, now: Manifest) -> Work:
        key = self._key_of(arguments)
        shapes = [(host.shape, str(host.dtype)) for host in arrays(arguments)]
        settings = (*self._settings.of_search, key)
        outline = describe(arguments)
        digest = disk_key(now, self._launch, self._configs, outline, shapes, settings, target, options)
        caches: Caches = {number: self._cache_of(config) for number, config in enumerate(self._configs)}
        job = TuningJob(self._launch, host_copies(arguments), target, self._configs, options)
        return Work(job, self._default, self._settings, caches, key, digest)

    def _key_of(self, arguments: Mapping[str, Any]) -> str:
        return ", ".join(described(name, arguments[name]) for name in self._key or arguments)

    def _manifest(self, arguments: Mapping[str, Any]) -> Manifest:
        return manifest_of(self.func, self._references(arguments))

    def _references(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        return (*self._launch.references, *describe(arguments).references)

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

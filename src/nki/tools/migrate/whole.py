"""A file from beginning to end: example calls, the new text, and the proof for each kernel."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nki.beta1.kernel import Beta1Kernel
from nki.beta1.served import serve
from nki.driver.launch import trace_results
from nki.kernel import Kernel, jit
from nki.options import Options
from nki.spec.program import Issued
from nki.target.model import Target
from nki.tools.migrate.calls import Call, calls_of, own_calls
from nki.tools.migrate.gathering import kernel_in
from nki.tools.migrate.loading import Failed, load
from nki.tools.migrate.made_up import Trace, made_up
from nki.tools.migrate.migration import Migrated, migrate
from nki.tools.migrate.problems import NOT_REACHED
from nki.tools.migrate.proof import TOO_LARGE, Proof, launch_of, prove
from nki.tools.migrate.variants import variants

SECONDS = 60.0
"""For what the file does by itself."""


@dataclass(frozen=True)
class Whole:
    """What became of a file.

    Attributes:
        proofs: of each kernel, by name.
        calls: with which arguments, by kernel.
        failed: statements of the file that cannot be executed here.
        broken: statements of the new text that cannot be executed, though those of the old one can.
    """

    text: Migrated
    proofs: dict[str, Proof]
    calls: dict[str, Call]
    failed: tuple[Failed, ...]
    broken: tuple[Failed, ...] = ()


def migrate_file(
    path: Path, given: Mapping[str, Any], target: Target, options: Options, script: Path | None = None
) -> Whole:
    """Rewrite a file, and compare each of its kernels with what became of it.

    Args:
        given: arguments for all kernels that have parameters of these names.
        script: a script or a file of tests that calls the kernels.

    What old spellings are told while the old kernels are traced is not shown: it is what is rewritten.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _migrated(path, given, target, options, script)


def _migrated(path: Path, given: Mapping[str, Any], target: Target, options: Options, script: Path | None) -> Whole:
    text = path.read_text()
    serve()
    loaded = load(path, text, f"_old_{path.stem}")
    old = loaded.module
    if loaded.failed and not kernels_of(old):
        raise loaded.failed[0].error
    calls, missing = example_calls(path, old, given, target, options, script)
    migrated = migrate(path, text, [call for each in calls.values() for call in each], target, options)
    if any(left.reason == NOT_REACHED for left in migrated.left):
        for name, each in calls.items():
            each += variants(kernel_in(old, name), each, _tracing(kernel_in(old, name), target, options))
        migrated = migrate(path, text, [call for each in calls.values() for call in each], target, options)
    if migrated.new == text:
        missing = {name: reason for name, reason in missing.items() if isinstance(kernel_in(old, name), Beta1Kernel)}
    first = {name: each[0] for name, each in calls.items()}
    proofs = {name: Proof(None, f"it was not executed: {reason}") for name, reason in missing.items()}
    if migrated.new == text:
        return Whole(migrated, proofs, first, loaded.failed)
    file = path.with_name(f"<new {path.name}>")
    linecache.cache[str(file)] = (len(migrated.new), None, migrated.new.splitlines(True), str(file))
    again = load(file, migrated.new, f"_new_{path.stem}")
    new, known = again.module, {each.reason for each in loaded.failed}
    broken = tuple(each for each in again.failed if each.reason not in known)
    for name, each in calls.items():
        after = kernel_in(new, name)
        if after is None and broken:
            proofs[name] = Proof(None, f"the new file cannot be imported: {broken[0].reason}")
            continue
        proofs[name] = _least([_proof(kernel_in(old, name), after, call, target, options) for call in each])
    return Whole(migrated, proofs, first, loaded.failed, broken)


def _least(proofs: list[Proof]) -> Proof:
    """The worst of the proofs of a kernel for several calls."""
    return min(proofs, key=lambda proof: (False, None, True).index(proof.equal))


def _proof(before: Any, after: Any, call: Call, target: Target, options: Options) -> Proof:
    """Whether a kernel and what became of it are the same, with smaller arguments if it is too large to be run."""
    if after is None:
        return Proof(None, "it is no kernel any more")
    if isinstance(before, Beta1Kernel) and isinstance(after, Beta1Kernel):
        after = jit(after.func)  # a function that is made a kernel where it is called
    grid = {}
    if isinstance(before, Beta1Kernel) and any(axis.serial > 1 or axis.cores == 1 for axis in call.grid):
        grid = {"grid": tuple(axis.size for axis in call.grid)}
    found = prove(before, after, call, grid, target, options)
    if found.how != TOO_LARGE or call.grid:
        return found
    smaller, _ = made_up(before, call.kernel, _tracing(before, target, options))
    if smaller is None:
        return found
    again = prove(before, after, smaller, {}, target, options)
    return again if again.equal is None else replace(again, how=f"{again.how}, at smaller sizes")


def _tracing(kernel: Any, target: Target, options: Options) -> Trace:
    """Traces a kernel; returns the places that issue instructions."""

    def trace(call: Call) -> frozenset[Any]:
        tracers, _ = trace_results(launch_of(kernel, call), call.args, call.kwargs, target, options, collect=False)
        return frozenset(item.location for item in tracers[0].program.body.items if isinstance(item, Issued))

    return trace


def example_calls(
    path: Path, module: Any, given: Mapping[str, Any], target: Target, options: Options, script: Path | None
) -> tuple[dict[str, list[Call]], dict[str, str]]:
    """Calls for each kernel of a file, and why there are none."""
    kernels = kernels_of(module)
    found = own_calls(path, SECONDS, frozenset(kernels)) if script is None else calls_of(script, path, SECONDS)
    calls: dict[str, list[Call]] = {}
    for each in found:
        calls.setdefault(each.kernel, []).append(each)
    missing: dict[str, str] = {}
    for name in _outer_first(kernels):
        parameters = inspect.signature(kernels[name].func).parameters
        own = {key: value for key, value in given.items() if key in parameters}
        needed = {key for key, each in parameters.items() if each.default is each.empty and each.kind in _NAMED}
        if own and (needed <= own.keys() or name not in _inside(kernels, calls)):
            calls[name] = [Call(name, (), own, calls[name][0].grid if name in calls else (), "--arg")]
        if name in calls or name in _inside(kernels, calls):
            continue
        with contextlib.redirect_stdout(None):
            call, reason = made_up(kernels[name], name, _tracing(kernels[name], target, options))
        if call is None:
            missing[name] = reason
        else:
            calls[name] = [call]
    inside = _inside(kernels, calls)
    return calls, {name: reason for name, reason in missing.items() if name not in inside}


def _outer_first(kernels: Mapping[str, Any]) -> list[str]:
    """The names of kernels, those first that no other one calls."""
    parts = set().union(*(_inside(kernels, {name: []}) - {name} for name in kernels))
    return sorted(kernels, key=lambda name: name in parts)


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _inside(kernels: Mapping[str, Any], calls: Mapping[str, list[Call]]) -> set[str]:
    """Kernels that are part of others which are called, by these or by functions in between."""
    found: set[str] = set()
    seen: set[Any] = set()
    waiting = [kernels[name].func for name in calls if name in kernels]
    while waiting:
        function = waiting.pop()
        seen.add(function)
        for name in function.__code__.co_names:
            other = function.__globals__.get(name)
            inner = kernels[name].func if name in kernels else other
            found |= {name} & kernels.keys()
            if inspect.isfunction(inner) and inner not in seen:
                waiting.append(inner)
    return found


def kernels_of(module: Any) -> dict[str, Any]:
    """The kernels that a file defines, by the names of their functions."""
    found = {}
    for value in vars(module).values():
        inner = getattr(value, "kernel", value)
        if isinstance(inner, Kernel) and inner.func.__module__ == module.__name__:
            found[inner.func.__name__] = inner
    return found

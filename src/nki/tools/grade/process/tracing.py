"""Tracing a candidate in its own process: for each set of arguments a program, or why there is none."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nki.core.errors import FrontendError, NkiError
from nki.core.source import UNKNOWN, of_function
from nki.core.tensor import View
from nki.driver.launch import trace_results
from nki.spec.rule import Finding, finding_of
from nki.store.payload import finding_written, tree_written
from nki.store.traced import pack_traced
from nki.target.load import load_target
from nki.tools.arguments import parse_arguments
from nki.tools.grade.process.task import Task
from nki.tools.kernel_file import KernelFile, load_kernel, on_grid
from nki.tools.user_code import kernel_errors

Send = Callable[[dict[str, Any]], None]


def trace_sets(task: Task, send: Send) -> None:
    """Import the candidate and send an answer for every set of arguments."""
    numbers = range(len(task.sets))
    try:
        loaded = load_kernel(task.kernel)
        findings = loaded.launch.front_end.check(loaded.launch.function)
    except Exception as problem:  # noqa: BLE001 - whatever the candidate raises is its answer
        for number in numbers:
            send(_refused(number, _findings_of(problem, UNKNOWN)))
        return
    for number in numbers:
        try:
            answer = _traced(loaded, task, number, findings)
        except BaseException as problem:  # noqa: BLE001 - so is what ends a process
            where = of_function(loaded.launch.function.__code__)
            answer = _refused(number, [*findings, *_findings_of(problem, where)])
        send(answer)


def _traced(loaded: KernelFile, task: Task, number: int, found: Sequence[Finding]) -> dict[str, Any]:
    launch, target = on_grid(loaded.launch, task.lnc, task.grid), load_target(task.options.target)
    arguments = parse_arguments(task.sets[number])
    with kernel_errors(launch.name, str(loaded.path)):
        tracers, result = trace_results(launch, (), arguments, target, task.options)
    findings = [*found, *(finding for tracer in tracers for finding in tracer.findings)]
    if any(finding.severity == "error" for finding in findings):
        return _refused(number, findings)
    programs = [tracer.program for tracer in tracers]
    return {
        "kind": "traced",
        "set": number,
        "program": base64.b64encode(pack_traced(programs)).decode(),
        "result": tree_written(_plain(result), iter(range(1 << 30))),
        "config": launch.config.plain(),
        "findings": _written(findings),
    }


def _refused(number: int, findings: Iterable[Finding]) -> dict[str, Any]:
    return {"kind": "refused", "set": number, "findings": _written(findings)}


def _findings_of(problem: BaseException, where: Any) -> list[Finding]:
    if isinstance(problem, MemoryError) or isinstance(problem.__cause__, MemoryError):
        message, rule = "the candidate needs more memory than it may use", "a process stays below --memory"
        fix = "trace the kernel with smaller objects, or raise --memory"
        return [finding_of(FrontendError("grade.memory", message, rule=rule, fix=fix, location=where), "error")]
    if isinstance(problem, NkiError):
        return [*problem.found, finding_of(problem, "error", where if problem.location is UNKNOWN else None)]
    message = f"the Python code of the candidate raised {type(problem).__name__}: {problem}"
    fix = "correct the kernel, or the arguments that it was called with"
    return [finding_of(FrontendError("kernel.exception", message[:500], fix=fix, location=where), "error")]


def _written(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [_one(finding) for finding in list(findings)[:100]]


def _one(finding: Finding) -> dict[str, Any]:
    facts = {name: value for name, value in finding.facts.items() if isinstance(value, int | str) or _is_number(value)}
    return finding_written(replace(finding, facts=facts), iter(()))


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


def _plain(tree: Any) -> Any:
    """Named tuples as tuples, other mappings as dictionaries: what JSON can say of a tree of results."""
    if isinstance(tree, View) or tree is None:
        return tree
    if isinstance(tree, Mapping):
        return {key: _plain(item) for key, item in tree.items()}
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    return tuple(_plain(item) for item in tree) if isinstance(tree, tuple) else tree

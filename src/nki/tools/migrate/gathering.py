"""Facts of a file: its kernels are traced with example calls."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import libcst as cst

from nki.beta1.kernel import Beta1Kernel, kernel_of
from nki.beta1.served import serve
from nki.driver.launch import trace_results
from nki.kernel import Kernel
from nki.options import Options
from nki.target.model import Target
from nki.tools.migrate.calls import Call
from nki.tools.migrate.facts import HOOK, Facts, instrumented
from nki.tools.migrate.loading import load
from nki.tools.migrate.proof import launch_of


def gather(
    path: Path, module: cst.Module, facts: Facts, calls: list[Call], target: Target, options: Options
) -> dict[str, str]:
    """Trace the kernels with the example calls, and write down what their expressions are."""
    serve()
    text = instrumented(module, facts)
    file = path.with_name(f"<facts of {path.name}>")
    linecache.cache[str(file)] = (len(text), None, text.splitlines(True), str(file))
    found = load(file, text, f"_facts_{path.stem}", {HOOK: facts.record}).module
    failed = {}
    for call in calls:
        kernel = kernel_in(found, call.kernel)
        if kernel is None:
            failed[call.kernel] = "there is no such kernel"
            continue
        try:
            trace_results(launch_of(kernel, call), call.args, call.kwargs, target, options, collect=True)
        except Exception as problem:  # noqa: BLE001 - whatever the kernel does
            failed[call.kernel] = f"{type(problem).__name__}: {problem}".splitlines()[0]
    return failed


def kernel_in(module: Any, name: str) -> Any:
    """The kernel of a function of that name."""
    for value in vars(module).values():
        inner = getattr(value, "kernel", value)
        if isinstance(inner, Beta1Kernel | Kernel) and inner.func.__name__ == name:
            return inner
    plain = vars(module).get(name)
    if callable(plain) and hasattr(plain, "__code__"):
        return kernel_of(plain)
    return None

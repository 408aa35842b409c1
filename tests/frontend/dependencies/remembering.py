"""Calls of a kernel that are remembered by its manifest alone, with a count of the traces."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import nki.driver.launch as launching
from nki.frontend.dependencies.arguments import describe
from nki.frontend.dependencies.manifest import Manifest, manifest_of
from nki.frontend.values import bind
from nki.options import Options
from nki.target.load import load_target

HEADER = """
import nki
import nki.isa as nisa
import nki.language as nl


def fill(value):
    out = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(tile, value=float(value))
    nisa.dma_copy(dst=out, src=tile)
    return out


"""
_numbers = itertools.count()


def load(path: Path, source: str, name: str = "") -> ModuleType:
    """A module from source, written to a file; the same name again takes the place of the module before."""
    name = name or f"remembered_{next(_numbers)}"
    file = path / f"{name}.py"
    file.write_text(HEADER + source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), vars(module))
    return module


class Remembering:
    """What a call of the kernel fills its result with; `traces` counts how often its Python ran."""

    def __init__(self, kernel: Any) -> None:
        self.function = kernel.func if hasattr(kernel, "func") else kernel
        self.traces = 0
        self.doubt = ""
        self._kept: tuple[Manifest, tuple[float, ...]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[float, ...]:
        described = describe(bind(self.function, args, kwargs, "kernel"))
        manifest = manifest_of(self.function, described.references)
        if self._kept is not None:
            before, result = self._kept
            same = before.digest == manifest.digest
            assert same or not before.untouched(described.references), "the quick answer is wrong"
            if same:
                return result
        self.traces += 1
        tracers = launching.trace_only(launching.Launch(self.function), args, kwargs, load_target("trn2"), Options())
        result = tuple(
            each.arguments[1]
            for tracer in tracers
            for each in tracer.program.body.walk()
            if each.instruction.name == "memset"
        )
        self.doubt = manifest.doubt_after(executed(tracers))
        self._kept = None if self.doubt else (manifest, result)
        return result


def executed(tracers: Any) -> set[Any]:
    """Code that was on the stack whenever something was issued or allocated."""
    return {code for tracer in tracers for code in tracer.locator.codes()}

"""A dozen models with numbers of NumPy for weights, so that no generator of a framework counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from scripts.replaying.case import Case, Found
from scripts.replaying.digest import digest, of_arrays, of_programs

from nki.graph.executable import Executable

MODELS = {
    "torch_models": ("mlp", "lenet", "block bf16", "llama prefill", "mamba", "classifier, gradient"),
    "jax_models": ("cnn", "block, gradient", "recurrent (scan)", "large", "operators"),
    "text_models": ("attention", "attention, two cores"),
}
"""Names by the module that makes them, which has a function ``run``; the last two are one model."""


def cases() -> Iterator[Case]:
    """All models."""
    for module, names in MODELS.items():
        for name in names:
            yield Case(f"model {module.removesuffix('_models')} {name}", partial(_run, module, name))


def _run(module: str, name: str) -> Found:
    found: Found = import_module(f"scripts.replaying.{module}").run(name)
    return found


def of_executables(executables: Sequence[Executable], results: Sequence[Any]) -> Found:
    """All aspects of the programs of a model, whose names count the compilations of the process."""
    found = [of_programs([replace(program, name="model") for program in each.programs]) for each in executables]
    return {
        "ir": digest(each["ir"] for each in found),
        "streams": digest(each["streams"] for each in found),
        "results": of_arrays(results),
        "makespan": repr(sum(float(each["makespan"]) for each in found)),
    }

"""A job as it is sent to another process: the kernel by name, arrays by shape and dtype."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki.driver.launch import Launch
from nki.frontend.dependencies.manifest import manifest_of
from nki.options import Options
from nki.tune.config import Config
from nki.tune.job import TuningJob


@dataclass(frozen=True, slots=True)
class Blank:
    """Stands for an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A job without what cannot be sent.

    Attributes:
        path: of imports.
        module, qualname: where the kernel is found.
        digest: of the kernel and everything that it can read, by value; the other process compares it.
        launch: with a function that stands for the kernel's.
        arguments: with `Blank` in place of arrays.
        target, configs, options: see `TuningJob`.
    """

    path: tuple[str, ...]
    module: str
    qualname: str
    digest: str
    launch: Launch
    arguments: dict[str, Any]
    target: str
    configs: tuple[Config, ...]
    options: Options


def pickled_task(job: TuningJob) -> bytes | None:
    """The job as bytes; None if another process could not make it the same.

    That is so for functions inside of functions and in the main script, which would run again when it is imported; for
    kernels that read what has no value to compare; and for arguments that have no pickle.
    """
    function = job.launch.function
    digest = manifest_of(function, job.launch.references).digest
    if not digest or function.__module__ == "__main__" or not _is_importable(function):
        return None
    launch = replace(job.launch, function=len)
    arguments = {name: _blank(value) for name, value in job.arguments.items()}
    task = Task(
        path=tuple(sys.path),
        module=function.__module__,
        qualname=function.__qualname__,
        digest=digest,
        launch=launch,
        arguments=arguments,
        target=job.target,
        configs=job.configs,
        options=job.options,
    )
    try:
        return pickle.dumps(task)
    except (pickle.PicklingError, TypeError, AttributeError):
        return None


def _is_importable(function: Callable[..., Any]) -> bool:
    """Whether its module was imported by name and has it, as it is or as a kernel."""
    return "<locals>" not in function.__qualname__ and function.__module__ in sys.modules


def _blank(value: Any) -> Any:
    match value:
        case np.ndarray():
            return Blank(value.shape, value.dtype)
        case tuple() if hasattr(value, "_fields"):
            return value
        case list() | tuple():
            return type(value)(_blank(item) for item in value)
        case dict():
            return {key: _blank(item) for key, item in value.items()}
    return value

"""A kernel that is to be tuned, and what can be asked about its candidates here or in another process."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nki.core.errors import NkiError
from nki.driver.compiled import Cache
from nki.driver.launch import Launch
from nki.options import Options
from nki.report import NkiWarning
from nki.target.load import load_target
from nki.tune.config import Config

Question = Literal["bound", "time"]

Caches = dict[int, Cache]
"""Compiled kernels of each candidate: settings of the compiler are no part of the keys of a kernel's own cache."""


@dataclass(frozen=True, slots=True)
class TuningJob:
    """What every candidate has in common.

    Attributes:
        launch: the kernel as decorated.
        arguments: of the call, by name; only shapes and dtypes of arrays count here.
        target: name.
        configs: the candidates.
        options: of the call.
    """

    launch: Launch
    arguments: Mapping[str, Any]
    target: str
    configs: tuple[Config, ...]
    options: Options

    def with_config(self, number: int) -> tuple[Launch, dict[str, Any]]:
        """How a candidate is launched, and its arguments."""
        config = self.configs[number]
        return config.launch(self.launch), {**self.arguments, **config.arguments}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came out.

    Attributes:
        ns: the time or its bound; None if the candidate was refused.
        reason: why it was refused; empty if it was not.
        assumed: whether the time takes a loop of unknown trips as one trip.
    """

    ns: float | None
    reason: str = ""
    assumed: bool = False


def answer(job: TuningJob, question: Question, number: int, cache: Cache) -> Answer:
    """Ask the timing model, in this process; what a candidate raises is an answer as well."""
    # Passes and the timing model are loaded when the first kernel is tuned, not with the package.
    model = importlib.import_module("nki.tune.model")
    launch, arguments = job.with_config(number)
    target, options = load_target(job.target), job.options
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NkiWarning)
            if question == "bound":
                return Answer(model.least_ns(launch, arguments, target, options))
            return Answer(*_timed(model.time_ns(launch, arguments, target, options, cache)))
    except Exception as problem:  # noqa: BLE001  what the Python of a kernel raises concerns this candidate alone
        return Answer(None, reason_of(problem))


def _timed(found: tuple[float, bool]) -> tuple[float, str, bool]:
    return found[0], "", found[1]


def reason_of(problem: Exception) -> str:
    """One line: the error's code and message, with the place where it was raised."""
    if isinstance(problem, NkiError):
        frame = problem.location.frame
        place = f" (line {frame.line})" if frame is not None else ""
        return f"{problem.code}: {' '.join(problem.message.split())}{place}"
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}"[:300] if text else type(problem).__name__

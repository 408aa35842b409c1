"""A kernel that is to be tuned, and what can be asked about its candidates here or in another process."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nki.core.errors import NkiError
from nki.driver import measure
from nki.driver.compiled import Cache
from nki.driver.launch import Launch
from nki.driver.prepare import prepare
from nki.options import Options
from nki.report import silenced
from nki.tune.config import Config

Question = Literal["bound", "time"]

_MOST_KEPT = 200_000
"""Instructions of traced candidates that wait for their second question, at some hundred bytes each."""

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


def unanswered(code: str, why: str) -> Answer:
    """The answer about a candidate of which workers end, or take too long."""
    return Answer(None, f"{code}: {why}")


def is_unanswered(reason: str) -> bool:
    """Whether a reason is that of `unanswered`: workers that have more memory, or time, may have an answer."""
    return reason.startswith(("tune.lost: ", "tune.timeout: "))


class Answers:
    """Asks the timing model about the candidates of a job, in this process; several threads may ask at once.

    A candidate is traced once for both questions, unless so much is traced meanwhile that memory might not suffice.
    """

    def __init__(self, job: TuningJob) -> None:
        self._job = job
        self._traced: dict[int, measure.Question] = {}
        self._kept = 0

    def of(self, question: Question, number: int) -> Answer:
        """The answer; what a candidate raises is one as well."""
        # Passes and the timing model are loaded when the first kernel is tuned, not with the package.
        model = importlib.import_module("nki.tune.model")
        try:
            with silenced():
                traced = self._traced.pop(number, None) or self._trace(number)
                if question == "time":
                    ns, assumed = model.time_ns(traced)
                    return Answer(ns, "", assumed)
                self._keep(number, traced)
                return Answer(model.least_ns(traced))
        except (Exception, SystemExit) as problem:  # noqa: BLE001  what the Python of a kernel raises concerns this candidate alone
            return Answer(None, reason_of(problem))

    def _trace(self, number: int) -> measure.Question:
        launch, arguments = self._job.with_config(number)
        prepared = prepare(launch, (), arguments, self._job.options, "compiled", target=self._job.target)
        return measure.question(prepared)

    def _keep(self, number: int, traced: measure.Question) -> None:
        self._kept += sum(1 for program in traced.asked.programs for _ in program.body.walk())
        if self._kept <= _MOST_KEPT:
            self._traced[number] = traced


def reason_of(problem: Exception | SystemExit) -> str:
    """One line: the error's code and message, with the place where it was raised."""
    if isinstance(problem, NkiError):
        frame = problem.location.frame
        place = f" (line {frame.line})" if frame is not None else ""
        return f"{problem.code}: {' '.join(problem.message.split())}{place}"
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}"[:300] if text else type(problem).__name__

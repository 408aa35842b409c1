"""A job as executors carry it: as it is in a process; to another one the kernel by name, arrays by shape and dtype."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import pickle
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from nki.core.locks import cached_property
from nki.driver.launch import Launch
from nki.frontend.dependencies.manifest import manifest_of
from nki.kernel import Kernel
from nki.options import Options
from nki.store.keys import installation
from nki.tune.config import Config
from nki.tune.job import Answer, Answers, Question, TuningJob


class NotSentError(Exception):
    """Why a job stays in its process, as the rest of a sentence that begins with the kernel's name, and what to do."""

    def __init__(self, why: str, fix: str = "put it into a module that other processes can import") -> None:
        super().__init__(why)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Unable:
    """The reply of a process that cannot make the same job, and why, as the rest of a sentence that begins with it."""

    why: str


class SentJob:
    """A job for `asked`, which an executor calls with it; what another process gets of it is a `_Received`.

    Attributes:
        name: of the kernel.
        refusal: why it could not be sent to another process; None if nobody tried in vain.
    """

    def __init__(self, job: TuningJob, answers: Answers) -> None:
        self._job, self._answers = job, answers
        self.name = job.launch.name
        self.refusal: NotSentError | None = None

    def of(self, question: Question, number: int) -> Answer:
        """The answer, of this process."""
        return self._answers.of(question, number)

    def prepare(self) -> None:
        """Do nothing: it is made."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Received, (self.pickled,)

    @cached_property
    def pickled(self) -> bytes:
        """The job for another process.

        Raises:
            NotSentError: it could not make the same job. That is so for functions inside of functions and in the main
                script, which would run again when it is imported; for kernels that read what has no value to compare;
                and for arguments that have no pickle.
        """
        try:
            return _pickled(self._job)
        except NotSentError as problem:
            self.refusal = problem
            raise


def asked(job: SentJob | _Received, question: Question, number: int, attempt: int) -> Answer | Unable:
    """The call that executors get.

    Args:
        attempt: tells a second call from the first one, for executors that remember what equal calls gave.
    """
    return job.of(question, number)


def prepare(job: SentJob | _Received) -> None:
    """Make the job in a process that is going to be asked, so that its questions take no longer than an answer."""
    job.prepare()


class _Received:
    """The job in another process, which is made when it is prepared, or the first question is asked."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def of(self, question: Question, number: int) -> Answer | Unable:
        """The answer, or why this process has none."""
        try:
            answers = _answers(self._sent)
        except _UnableError as problem:
            return Unable(f"a process of {socket.gethostname()} {problem}")
        return answers.of(question, number)

    def prepare(self) -> None:
        """Make the job; that it cannot be made is what the first question is told."""
        with contextlib.suppress(_UnableError):
            _answers(self._sent)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Received, (self._sent,)


@dataclass(frozen=True, slots=True)
class _Blank:
    """Stands for an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class _Parts:
    """A job without what cannot be sent.

    Attributes:
        module, file, qualname: where the kernel is found.
        digest: of the kernel and everything that it can read, by value; the other process compares it.
        launch: with a function that stands for the kernel's.
        arguments: with `_Blank` in place of arrays.
        target, configs, options: see `TuningJob`.
    """

    module: str
    file: str
    qualname: str
    digest: str
    launch: Launch
    arguments: dict[str, Any]
    target: str
    configs: tuple[Config, ...]
    options: Options


def _pickled(job: TuningJob) -> bytes:
    function = job.launch.function
    module = sys.modules.get(function.__module__)
    if function.__module__ == "__main__":
        raise NotSentError("is in the main script, which would run again in every process")
    if "<locals>" in function.__qualname__ or module is None:
        raise NotSentError("is a function in a function, which has no name elsewhere")
    digest = manifest_of(function, job.launch.references).digest
    if not digest:
        raise NotSentError("reads what has no value to compare", "give it what it reads as arguments, or take threads")
    parts = _Parts(
        module=function.__module__,
        file=getattr(module, "__file__", None) or "",
        qualname=function.__qualname__,
        digest=digest,
        launch=replace(job.launch, function=len),
        arguments={name: _blank(value) for name, value in job.arguments.items()},
        target=job.target,
        configs=job.configs,
        options=job.options,
    )
    try:
        return pickle.dumps((installation(), sys.path, pickle.dumps(parts)))
    except (pickle.PicklingError, TypeError, AttributeError) as problem:
        fix = "have the call and the configurations give it constants and arrays"
        raise NotSentError(f"is called with what has no pickle ({problem})", fix) from None


class _UnableError(Exception):
    """Why this process cannot make the job."""


@lru_cache(maxsize=2)  # the traced candidates of a job wait for their second question; of more jobs memory would fill
def _answers(sent: bytes) -> Answers:
    theirs, path, pickled = pickle.loads(sent)
    if theirs != installation():
        raise _UnableError("has another installation of nki, Python or NumPy")
    sys.path += [each for each in path if each not in sys.path]
    try:
        parts: _Parts = pickle.loads(pickled)
    except Exception as problem:  # noqa: BLE001  whatever values of the user's classes do
        raise _UnableError(f"cannot read the configurations or arguments: {problem}") from None
    function = _function(parts)
    if manifest_of(function, parts.launch.references).digest != parts.digest:
        raise _UnableError(f"imports another {parts.qualname} from {parts.module}")
    launch: Launch = replace(parts.launch, function=function)
    return Answers(TuningJob(launch, _filled(parts.arguments), parts.target, parts.configs, parts.options))


def _function(parts: _Parts) -> Callable[..., Any]:
    try:
        found: Any = _imported(parts)
        for name in parts.qualname.split("."):
            found = getattr(found, name)
    except Exception as problem:  # noqa: BLE001  whatever the import of the user's module does
        raise _UnableError(f"cannot import {parts.qualname} from {parts.module}: {problem}") from None
    return found.func if isinstance(found, Kernel) else found


def _imported(parts: _Parts) -> ModuleType:
    """The kernel's module by its name; or by its file, as `nki tune` loads files."""
    try:
        return importlib.import_module(parts.module)
    except ModuleNotFoundError as problem:
        spec = importlib.util.spec_from_file_location(parts.module, parts.file) if parts.file else None
        if problem.name != parts.module or spec is None or spec.loader is None:
            raise
    module = importlib.util.module_from_spec(spec)
    sys.modules[parts.module] = module
    spec.loader.exec_module(module)
    return module


def _blank(value: Any) -> Any:
    match value:
        case np.ndarray():
            return _Blank(value.shape, value.dtype)
        case tuple() if hasattr(value, "_fields"):
            return value
        case list() | tuple():
            return type(value)(_blank(item) for item in value)
        case dict():
            return {key: _blank(item) for key, item in value.items()}
    return value


def _filled(value: Any) -> Any:
    """Arguments with zeros for arrays."""
    match value:
        case _Blank(shape, dtype):
            return np.zeros(shape, dtype)
        case list() | tuple():
            return type(value)(_filled(item) for item in value)
        case dict():
            return {key: _filled(item) for key, item in value.items()}
    return value

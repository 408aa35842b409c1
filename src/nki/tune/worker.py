"""A process that asks the timing model about candidates: a pickled task comes in, then numbers; answers go out.

Only `nki.tune.workers` starts it. Pickles come from the process that started it and from nowhere else.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from nki.driver.launch import Launch
from nki.frontend.dependencies.manifest import manifest_of
from nki.kernel import Kernel
from nki.tune.job import Answers, TuningJob
from nki.tune.task import Blank, Task


def main() -> None:
    """Serve until the input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    # What the user's module prints on import was printed in the first process already.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    requests = sys.stdin.buffer
    task: Task = pickle.load(requests)
    job = _job(task)
    _send(replies, job is not None)
    if job is None:
        return
    answers = Answers(job)
    while True:
        try:
            question, number = pickle.load(requests)
        except EOFError:
            return
        _send(replies, answers.of(question, number))


def _send(replies: BinaryIO, value: Any) -> None:
    pickle.dump(value, replies)
    replies.flush()


def _job(task: Task) -> TuningJob | None:
    """The job with the kernel as this process imports it; None if that is not the same kernel."""
    sys.path[:] = task.path
    found: Any = importlib.import_module(task.module)
    for name in task.qualname.split("."):
        found = getattr(found, name)
    function = found.func if isinstance(found, Kernel) else found
    if manifest_of(function, task.launch.references).digest != task.digest:
        return None
    launch: Launch = replace(task.launch, function=function)
    return TuningJob(launch, filled(task.arguments), task.target, task.configs, task.options)


def filled(value: Any) -> Any:
    """Arguments with zeros for arrays."""
    match value:
        case Blank(shape, dtype):
            return np.zeros(shape, dtype)
        case list() | tuple():
            return type(value)(filled(item) for item in value)
        case dict():
            return {key: filled(item) for key, item in value.items()}
    return value


if __name__ == "__main__":
    main()

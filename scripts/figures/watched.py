"""Runs a subject and prints, as JSON, the functions of the package that begin and end in each of its calls.

usage: python -m scripts.figures.watched kernel|model FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any

WARM = 3
"""Calls before the one that counts as a later one."""


class Watch:
    """Collects which functions, and bodies of classes, of a folder begin and end in this thread.

    Attributes:
        events: "call" or "return"; file and function of the package that called, "" if none did; and those that began
            or ended.
    """

    def __init__(self, folder: str) -> None:
        self._folder = f"{folder}/"
        self.events: list[list[str]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Collect while the body runs."""
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event in ("call", "return") and code.co_name != "<module>" and code.co_filename.startswith(self._folder):
            self.events.append([event, *self._caller(frame.f_back), *self._named(frame)])

    def _caller(self, frame: FrameType | None) -> list[str]:
        """The function of the package that called, through whatever lies between."""
        while frame is not None:
            if frame.f_code.co_filename.startswith(self._folder):
                return self._named(frame)
            frame = frame.f_back
        return ["", ""]

    def _named(self, frame: FrameType) -> list[str]:
        return [frame.f_code.co_filename.removeprefix(self._folder), frame.f_code.co_qualname]


def main(subject: str, folder: str) -> None:
    """Watch the first call and a later one."""
    module = import_module(f"scripts.figures.walked_{subject}")
    call: Callable[[], object] = module.prepared()
    found = {}
    for number in range(WARM + 1):
        watch = Watch(folder)
        with watch.watching():
            call()
        if number in (0, WARM):
            found[f"{module.NAME}, {'a later call' if number else 'the first call'}"] = watch.events
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

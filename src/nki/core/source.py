"""Where in the user's source something happened: frames, call chains, excerpts with a caret."""

from __future__ import annotations

import linecache
import re
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from nki.core.origin import Origin

_PACKAGE = str(Path(__file__).absolute().parent.parent) + "/"
_EXAMPLES = _PACKAGE + "examples/"  # kernels that an installed package carries: they are user code
_CHAIN_INNER, _CHAIN_OUTER = 6, 3

GENERATED = _PACKAGE + "<generated>"
"""File name of code that this package makes itself."""

_DEFINITION = re.compile(r"^\s*(async\s+)?def\s|\blambda\b")

STARTED: ContextVar[FrameType | None] = ContextVar("STARTED", default=None)
"""Where the thread that runs was started, for threads that stand for a part of their caller's work."""

KERNEL_BOUNDARY = "run_body"
"""Name of the function of this package that calls a kernel's Python body."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One call site. Lines count from 1, columns from 0 and in characters; an unknown end is 0."""

    file: str
    function: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"


@dataclass(frozen=True, slots=True)
class Location:
    """The user's frames from the innermost call site outwards; empty if no user code was on the stack.

    `origin` is where in a model this is; compiled programs keep it elsewhere (`nki.spec.model_kernels`).
    """

    frames: tuple[Frame, ...] = ()
    origin: Origin | None = None

    @property
    def frame(self) -> Frame | None:
        """The line to point at."""
        return self.frames[0] if self.frames else None

    def __str__(self) -> str:
        return str(self.frames[0]) if self.frames else "<unknown>"

    def excerpt(self) -> str:
        """The source line with a caret below it, or a sentence that says why there is none."""
        if not self.frames:
            return "  (no user code on the stack)"
        return excerpt(self.frames[0])

    def chain(self) -> str:
        """The calls that led to the innermost frame, one line each; empty if there was no nested call.

        Of many calls the innermost and the outermost are shown: these are the error's and the kernel's.
        """
        calls = [(frame, sum(1 for _ in same)) for frame, same in groupby(self.frames[1:])]
        lines = [_call(frame, times) for frame, times in calls]
        left_out = sum(times for _, times in calls[_CHAIN_INNER:-_CHAIN_OUTER])
        if left_out:
            lines[_CHAIN_INNER:-_CHAIN_OUTER] = [f"  ... {left_out} more calls"]
        return "\n".join(lines)

    def to_json(self) -> list[dict[str, str | int]]:
        """Innermost first; columns count from 0."""
        return [
            {"file": f.file, "line": f.line, "column": f.column, "end_column": f.end_column, "function": f.function}
            for f in self.frames
        ]


def _call(frame: Frame, times: int) -> str:
    text = linecache.getline(frame.file, frame.line).strip()
    repeated = f", {times} times" if times > 1 else ""
    how = "made by" if is_own(frame) else "called from"
    return f"  {how} {frame} in {frame.function}{repeated}" + (f"\n    {text}" if text else "")


UNKNOWN = Location()


def excerpt(frame: Frame) -> str:
    """Header, source line and caret for one frame."""
    header = f"  --> {frame} in {frame.function}"
    text = linecache.getline(frame.file, frame.line).rstrip("\n")
    if not text:
        return f"{header}\n      | (source not available: the kernel was defined without a file)"
    number = str(frame.line)
    pad = " " * len(number)
    end = frame.end_column if frame.end_line == frame.line and frame.end_column > frame.column else len(text)
    marks = " " * frame.column + "^" * max(1, end - frame.column)
    return f"{header}\n   {pad} |\n   {number} | {text}\n   {pad} | {marks}"


_POSITION_BITS = 32


class Locator:
    """Turns the running stack into a `Location`; remembers call sites, since a loop visits the same ones again.

    One thread at a time uses it.

    Code objects are looked up by identity, because their hash goes through all of their constants and names.
    """

    __slots__ = ("_boundary", "_cache", "_held", "_kept", "_shown", "_users")

    def __init__(self, boundary: CodeType | None = None) -> None:
        self._boundary = boundary
        self._held: Location | None = None
        self._shown = ""
        self._cache: dict[tuple[int, ...], Location] = {}
        self._users: dict[int, int] = {}
        self._kept: list[CodeType] = []

    def show(self, folder: str) -> None:
        """Show the innermost line of this package's code in a folder: kernels of its own have no user's lines."""
        self._shown = folder

    def codes(self) -> set[CodeType]:
        """The user's code that was on the stack whenever a location was captured."""
        return {code for code in self._kept if self._users[id(code)]}

    def hold(self, location: Location | None = None) -> Location | None:
        """What follows has one location until `release` gets the result: the given one, or that of the user's call."""
        before, self._held = self._held, self.capture() if location is None else location
        return before

    def release(self, before: Location | None) -> None:
        """Look for call sites again, or hold the one that was held before."""
        self._held = before

    def capture(self) -> Location:
        """Location of the user's call site that led here; stops at the boundary function, if one was given."""
        if self._held is not None:
            return self._held
        frame: FrameType | None = sys._getframe(1)
        boundary, users = self._boundary, self._users.get
        sites: list[int] = []
        while frame is not None:
            code = frame.f_code
            if code is boundary:
                break
            first = users(id(code))
            if first is None:
                first = self._number(code)
            if first:
                sites.append(first + frame.f_lasti)
            frame = frame.f_back
        key = tuple(sites)
        location = self._cache.get(key)
        if location is None:
            location = self._cache[key] = Location(tuple(self._frames(key)))
        return location

    def _number(self, code: CodeType) -> int:
        """What the numbers of a code's positions begin with, apart from those of all others; 0 if it is not shown."""
        self._kept.append(code)  # so that no other code gets this identity
        hidden = is_internal(code) and not self._shows(code)
        self._users[id(code)] = first = 0 if hidden else len(self._kept) << _POSITION_BITS
        return first

    def _shows(self, code: CodeType) -> bool:
        return self._shown != "" and code.co_filename.startswith(self._shown)

    def _frames(self, key: tuple[int, ...]) -> Iterator[Frame]:
        shown = False
        for site in key:
            number, lasti = divmod(site, 1 << _POSITION_BITS)
            code = self._kept[number - 1]
            if not self._shows(code):
                yield _frame(code, lasti)
            elif not shown:
                shown = True
                yield _frame(code, lasti)


def text_of(frame: Frame | None) -> str:
    """What the user wrote at a call site, as far as it is on its first line; empty if there is none."""
    return "" if frame is None else linecache.getline(frame.file, frame.line)[frame.column :].strip()


def here() -> Location:
    """The user's call site, without a cache: for errors.

    Inside a kernel the chain ends at the kernel; outside, the call site alone is enough.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == KERNEL_BOUNDARY and is_internal(frame.f_code):
            return Locator(frame.f_code).capture()
        frame = frame.f_back
    return Location(Locator().capture().frames[:1])


def called_from(folder: str) -> Location:
    """The call site that led into a library: the innermost line outside of its folder, for what the library refuses.

    A core or a rank that runs in a thread of its own was called from where its thread was started.

    Args:
        folder: absolute path, in which the library's own lines are.
    """
    started, last = STARTED.get(), UNKNOWN
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code) and code.co_filename != threading.__file__:
            last = Location((_frame(code, frame.f_lasti),))
            if not code.co_filename.startswith(f"{folder}/"):
                return last
        if frame.f_back is None:
            frame, started = started, None
        else:
            frame = frame.f_back
    return last


def of_traceback(traceback: TracebackType | None) -> Location:
    """Where an exception of Python itself came from: the user's lines, innermost first, inside the kernel if in one."""
    frames: list[Frame] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_internal(code):
            frames.insert(0, _frame(code, traceback.tb_lasti))
        traceback = traceback.tb_next
    return Location(tuple(frames)) if frames else UNKNOWN


def is_own(frame: Frame) -> bool:
    """True for a line of this package, but not of the examples that come with it."""
    return frame.file.startswith(_PACKAGE) and not frame.file.startswith(_EXAMPLES)


def is_internal(code: CodeType) -> bool:
    """True for code of this package, of the standard library's plumbing and of frozen modules."""
    file = code.co_filename
    if file.startswith(_PACKAGE):
        return not file.startswith(_EXAMPLES)
    if file == "<string>":  # the file name of what dataclasses make, and of the user's own exec
        return code.co_qualname.startswith("__create_fn__.")
    return file.startswith("<frozen") or file.endswith("/contextlib.py")


def of_function(code: CodeType) -> Location:
    """Location of a function's definition: its line below the decorators, where the source is known."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    below = next((number for number, line in enumerate(lines) if _DEFINITION.search(line)), 0)
    line = code.co_firstlineno + below
    text = lines[below].rstrip() if lines else ""
    column = len(text) - len(text.lstrip())
    return Location((Frame(code.co_filename, code.co_qualname, line, column, line if text else 0, len(text)),))


_FRAMES: dict[tuple[int, int], tuple[CodeType, Frame]] = {}
"""One object for each place in the process, so that places can be compared by identity; emptied at `_MOST_FRAMES`."""

_MOST_FRAMES = 1 << 14


def _frame(code: CodeType, lasti: int) -> Frame:
    """The frame of a position in a code object, which is kept, so that its identity stays its own."""
    found = _FRAMES.get((id(code), lasti))
    if found is None:
        if len(_FRAMES) >= _MOST_FRAMES:
            _FRAMES.clear()
        found = _FRAMES[id(code), lasti] = (code, _resolve(code, lasti))
    return found[1]


def _resolve(code: CodeType, lasti: int) -> Frame:
    positions = list(code.co_positions())
    line, end_line, column, end_column = positions[lasti // 2] if lasti >= 0 else (None, None, None, None)
    line = line or code.co_firstlineno
    text = linecache.getline(code.co_filename, line)
    column, end_column = (_characters(text, byte or 0) for byte in (column, end_column))
    return Frame(code.co_filename, code.co_qualname, line, column, end_line or line, end_column)


def _characters(text: str, byte_offset: int) -> int:
    """The interpreter counts UTF-8 bytes, people count characters."""
    return byte_offset if text.isascii() else len(text.encode()[:byte_offset].decode(errors="ignore"))

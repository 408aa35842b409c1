"""What the host did and when: spans of calls, compilation, loading, execution and transfers, while somebody records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from nki.core.locks import lock
from nki.runtime import arguments
from nki.runtime.arguments import checked

Fact = str | int | float
Range = Callable[[str], AbstractContextManager[object]]
"""Opens a named range in a framework's own profiler."""


@dataclass(frozen=True, slots=True)
class Span:
    """One thing that the host did.

    Attributes:
        name, category: what it did, and which part of this package.
        start, end: ns of `time.perf_counter_ns`.
        thread: its name.
        facts: for people.
    """

    name: str
    category: str
    start: int
    end: int
    thread: str
    facts: tuple[tuple[str, Fact], ...] = ()


@dataclass(slots=True)
class Recording:
    """The spans of a time; those of all threads, in the order in which they ended."""

    spans: list[Span] = field(default_factory=list)


_LOCK = lock()
_RECORDINGS: list[Recording] = []
"""Who records at this moment, in whichever thread; each is here for the length of its `with` statement."""

_RANGES: dict[str, tuple[Range, Callable[[], bool]]] = {}
"""By framework: what opens a range, and whether its profiler records."""
_NOTHING = nullcontext()


@contextmanager
def recording() -> Iterator[Recording]:
    """Record the spans that end in the body of the ``with`` statement, in all threads."""
    made = Recording()
    with _LOCK:
        _RECORDINGS.append(made)
    try:
        yield made
    finally:
        with _LOCK:
            _RECORDINGS[:] = [each for each in _RECORDINGS if each is not made]


def _always() -> bool:
    return True


@checked(framework=arguments.text, make=arguments.function)
def show_ranges(framework: str, make: Range | None) -> None:
    """Show spans in a framework's profiler as well: `make` opens a range there; None ends that."""
    show_ranges_while(_always, framework, make)


def show_ranges_while(records: Callable[[], bool], framework: str, make: Range | None) -> None:
    """`show_ranges` for a profiler that can tell whether it records, so that no range is opened for nobody."""
    with _LOCK:
        if make is None:
            _RANGES.pop(framework, None)
        else:
            _RANGES[framework] = make, records


def span(name: str, category: str, **facts: Fact) -> AbstractContextManager[None]:
    """Note that the body of the ``with`` statement happens; costs next to nothing if nobody records."""
    makers = [make for make, records in list(_RANGES.values()) if records()]
    return _noted(name, category, facts, makers) if makers or _RECORDINGS else _NOTHING


@contextmanager
def _noted(name: str, category: str, facts: Mapping[str, Fact], makers: list[Range]) -> Iterator[None]:
    with _ranges(f"nki {category}: {name}", makers):
        start = time.perf_counter_ns()
        try:
            yield
        finally:
            end = time.perf_counter_ns()
            made = Span(name, category, start, end, threading.current_thread().name, tuple(facts.items()))
            with _LOCK:
                for each in _RECORDINGS:
                    each.spans.append(made)


def _ranges(name: str, makers: list[Range]) -> AbstractContextManager[object]:
    if not makers:
        return nullcontext()
    return _nested(name, makers)


@contextmanager
def _nested(name: str, makers: list[Range]) -> Iterator[None]:
    with makers[0](name):
        if len(makers) == 1:
            yield
        else:
            with _nested(name, makers[1:]):
                yield

"""Loops: Python's ints while the kernel is traced, so that bodies are unrolled."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from nki.beta1.errors import Beta1TypeError, Beta1ValueError, refused
from nki.beta1.language.arguments import hints_only
from nki.beta1.tracing.promises import AffineLoop
from nki.beta1.tracing.session import Session, current


def affine_range(*args: Any, **kwargs: Any) -> Iterator[int]:
    """A loop whose trips may run in any order: none reads what another one writes, but for sums.

    With ``precise_schedule=True``, as pipelined kernels write, they run in their order, and promise nothing.

    Raises:
        Beta1Error: at the end of the kernel, if one does ("beta1.unexpected_output_dependencies").
    """
    trips, session = _trips("affine_range", args, kwargs), current("nl.affine_range")
    loop = AffineLoop(session.tracer.locator.capture())
    return _watched(trips, session, loop, promises=not kwargs.get("precise_schedule", False))


def _watched(trips: Iterator[int], session: Session, loop: AffineLoop, *, promises: bool) -> Iterator[int]:
    if promises:
        session.loops.append(loop)
    program = session.program
    session.inside.append(program)
    try:
        for trip in trips:
            loop.starts.append(len(session.items))
            yield trip
    finally:
        session.inside.remove(program)
        loop.end = len(session.items)


def sequential_range(*args: Any, **kwargs: Any) -> Iterator[int]:
    """A loop whose trips run one after another."""
    return _trips("sequential_range", args, kwargs)


def static_range(*args: Any, **kwargs: Any) -> Iterator[int]:
    """A loop that is unrolled while the kernel is traced."""
    return _trips("static_range", args, kwargs)


def _trips(function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[int]:
    hints_only(f"nl.{function}", kwargs)
    try:
        bounds = [operator.index(each) for each in args]
        return iter(range(*bounds))
    except (TypeError, ValueError) as error:
        raise refused(
            "argument",
            f"nl.{function} got {', '.join(map(repr, args)) or 'no argument'}",
            f"write nl.{function}(stop) or nl.{function}(start, stop, step) with ints, and a step that is not 0",
            kind=Beta1TypeError if isinstance(error, TypeError) else Beta1ValueError,
        ) from None

"""Loops: Python's ints while the kernel is traced, so that bodies are unrolled; numbers of run time are looped over."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from nki.beta1.errors import Beta1Error, Beta1TypeError, Beta1ValueError, refused
from nki.beta1.language.arguments import hints_only
from nki.beta1.tensors.scalar import Scalar
from nki.beta1.tracing.device_loops import DeviceRange
from nki.beta1.tracing.promises import AffineLoop, left_early
from nki.beta1.tracing.session import Session, current


def affine_range(*args: Any, **kwargs: Any) -> Iterable[Any]:
    """A loop whose trips may run in any order: none reads what another one writes, but for sums.

    With ``precise_schedule=True``, as pipelined kernels write, they run in their order, and promise nothing. Bounds may
    be numbers of run time (`nki.beta1.typing.scalar`), and so are the values then.

    Raises:
        Beta1Error: at the end of the kernel, if one does ("beta1.unexpected_output_dependencies").
    """
    promises = not kwargs.get("precise_schedule", False)
    trips, session = _trips("nl.affine_range", args, kwargs, promises=promises), current("nl.affine_range")
    if isinstance(trips, DeviceRange):
        return trips
    body = session.tracer.body
    loop = AffineLoop(session.tracer.locator.capture(), body.block)
    return _watched(trips, session, loop, promises=promises and body.recording)


def _watched(trips: Iterable[int], session: Session, loop: AffineLoop, *, promises: bool) -> Iterator[int]:
    if promises:
        session.loops.append(loop)
    program = session.program
    session.inside.append(program)
    try:
        for trip in trips:
            loop.starts.append(session.position)
            yield trip
    except GeneratorExit:  # by return or break, or by an error, after which nobody asks for what was left out
        session.left_out += left_early(loop, operator.length_hint(trips))
        raise
    finally:
        session.inside.remove(program)
        loop.end = session.position


def sequential_range(*args: Any, **kwargs: Any) -> Iterable[Any]:
    """A loop whose trips run one after another; bounds may be numbers of run time (`nki.beta1.typing.scalar`)."""
    return _trips("nl.sequential_range", args, kwargs)


def static_range(*args: Any, **kwargs: Any) -> Iterable[Any]:
    """A loop that is unrolled while the kernel is traced."""
    if any(type(each) is Scalar for each in args):
        raise refused(
            "dynamic_control_flow_not_supported",
            "nl.static_range got a number of run time",
            "write nl.sequential_range(number)",
            rule="nl.static_range is unrolled while the kernel is traced",
            kind=Beta1TypeError,
        )
    return _trips("nl.static_range", args, kwargs)


class _Ranges(type):
    """Lets values of Python's range be instances of `range` below."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, builtins.range | DeviceRange)


class range(metaclass=_Ranges):  # noqa: N801 - it stands for Python's
    """Python's range, which also takes numbers of run time: ``for i in range(nt.scalar(tile)):``.

    Modules that ask `nki.beta1.typing` for `scalar` find it under this name.
    """

    def __new__(cls, *args: Any) -> Any:
        if any([type(each) is Scalar for each in args]):
            return _trips("range", args, {})
        return builtins.range(*args)


def _trips(function: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, promises: bool = False) -> Iterable[Any]:
    hints_only(function, kwargs)
    try:
        bounds = [each if type(each) is Scalar else operator.index(each) for each in args]
        if any([type(each) is Scalar for each in bounds]):
            return DeviceRange(function, bounds, promises=promises)
        return iter(builtins.range(*bounds))
    except (TypeError, ValueError) as error:
        if isinstance(error, Beta1Error):
            raise
        raise refused(
            "argument",
            f"{function} got {', '.join(map(repr, args)) or 'no argument'}",
            f"write {function}(stop) or {function}(start, stop, step) with ints, and a step that is not 0",
            kind=Beta1TypeError if isinstance(error, TypeError) else Beta1ValueError,
        ) from None

"""Loops: the iterators that unroll, the loops that run on the device, and no_reorder."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import nki.isa as nisa
from nki.core.errors import ArgumentError, FrontendError
from nki.core.register import VirtualRegister, not_python
from nki.core.shown import one_line, shown
from nki.isa.scalar import NkiScalar
from nki.language.arguments import integer, public
from nki.language.rebound import Captured
from nki.spec.instruction import NkiInstruction
from nki.spec.sink import Sink, current_sink


@public
def affine_range(start: Any, stop: Any = None, step: Any = 1) -> range | DynamicRange:
    """Deprecated: Python's range; with a register as a bound, `dynamic_range`."""
    return _range_or_loop("affine_range", start, stop, step)


@public
def sequential_range(start: Any, stop: Any = None, step: Any = 1) -> range | DynamicRange:
    """Deprecated: Python's range; with a register as a bound, `dynamic_range`."""
    return _range_or_loop("sequential_range", start, stop, step)


@public
def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Deprecated: Python's range."""
    return _range("static_range", start, stop, step)


@public
def unrolled_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Deprecated: Python's range, under the name ``nl.range``, which published kernels use and no document has."""
    return _range("range", start, stop, step)


class DynamicRange:
    """What `dynamic_range` returns: a ``for`` statement over it is a loop on the device.

    Attributes:
        lower, upper: ints or registers; `upper` is not reached.
        step: positive int.
    """

    __slots__ = ("lower", "step", "upper")

    def __init__(self, lower: int | VirtualRegister, upper: int | VirtualRegister, step: int) -> None:
        self.lower = lower
        self.upper = upper
        self.step = step

    def __iter__(self) -> Iterator[NkiScalar]:
        sink = current_sink("nl.dynamic_range")
        indices = sink.for_statement(_record(self.lower), _record(self.upper), self.step, sys._getframe(1))
        return (NkiScalar(index) for index in indices)

    def __repr__(self) -> str:
        return f"nl.dynamic_range({self.lower}, {self.upper}, {self.step})"


@public
def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> DynamicRange:
    """Deprecated: `fori_loop`. ``for i in nl.dynamic_range(...):`` runs on the device.

    The body is traced once, so it has no ``break``, ``continue`` or ``return``, and no Python name carries a value from
    trip to trip: that is in tensors and registers that were made before the loop.

    Args:
        start: int or register; the only argument is `stop`, and `start` is 0 then.
        stop: int or register that is not reached.
        step: positive int.

    Raises:
        FrontendError: where the loop is, with code ``loop.step``, ``loop.escape``, ``loop.carried``,
            ``loop.no-reorder``, ``loop.source`` or ``loop.dynamic-range``.
    """
    first, last = (0, start) if stop is None else (start, stop)
    return DynamicRange(
        _bound(first, "start", "dynamic_range"), _bound(last, "stop", "dynamic_range"), _step(step, "dynamic_range")
    )


@public
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[NkiScalar], NkiInstruction | None], step: Any = 1) -> None:
    """``for i in range(lower, upper, step): body_fun(i)`` on the device.

    The body is traced once. It gets the index as a scalar that cannot be written, for use as a ``scalar_offset``, in
    ``tensor.select`` or in arithmetic; what one trip leaves to the next is in tensors and registers outside. Tensors
    that the body allocates end with it.

    Args:
        lower, upper: ints or registers; `upper` is not reached.
        body_fun: function of the index, returns None.
        step: positive int.

    Raises:
        FrontendError: ``loop.step``, ``loop.carried``, ``loop.result`` or ``loop.no-reorder``.
    """
    sink = _loop_sink("fori_loop", body_fun)
    increment = _step(step, "fori_loop")
    first, last = _bound(lower, "lower", "fori_loop"), _bound(upper, "upper", "fori_loop")

    def body(index: VirtualRegister) -> None:
        captured = Captured(body_fun)
        _check_no_result(body_fun(NkiScalar(index)))
        captured.check(sink)

    sink.for_loop(_record(first), _record(last), increment, body)


@public
def while_loop(init: VirtualRegister, body_fun: Callable[[NkiScalar], VirtualRegister]) -> None:
    """``while condition: condition = body_fun(condition)`` on the device, with ``condition = init`` at first.

    The body is traced once. `init` itself does not change; what else one trip leaves to the next is in tensors outside.

    Args:
        init: register; if it holds 0, the body never runs.
        body_fun: function of the condition's register, returns the register with the next condition.
    """
    sink = _loop_sink("while_loop", body_fun)
    if not isinstance(init, VirtualRegister):
        raise ArgumentError(
            "loop.condition",
            f"nl.while_loop: init is {shown(init)}",
            rule="the condition is a register",
            fix=f"make one with nisa.register_alloc({init!r})" if isinstance(init, int) else "load it into a register",
        )
    condition = nisa.register_alloc()
    nisa.register_move(condition, init)

    def body(register: VirtualRegister) -> VirtualRegister:
        captured = Captured(body_fun)
        following = body_fun(NkiScalar(register))
        captured.check(sink)
        if not isinstance(following, VirtualRegister):
            raise FrontendError(
                "loop.result",
                f"the body of nl.while_loop returns {shown(following)}",
                rule="the body returns the register with the next condition",
                fix="load the condition with nisa.register_load(register, tensor), and return the register",
            )
        if following.record is not register:
            nisa.register_move(register, following)
        return register

    sink.while_loop(condition, body)


@contextmanager
def _ordered(sink: Sink) -> Iterator[None]:
    if not sink.no_reorder_depth:
        sink.ordered.append([])
    sink.no_reorder_depth += 1
    try:
        yield
    finally:
        sink.no_reorder_depth -= 1


@public
def no_reorder() -> Any:
    """``with nl.no_reorder():`` keeps the instructions inside, also of called functions, in program order.

    Device loops are not possible inside; Python loops are.
    """
    return _ordered(current_sink("nl.no_reorder"))


def _range_or_loop(name: str, start: Any, stop: Any, step: Any) -> range | DynamicRange:
    """A bound may be a register (nki/library/api/dynamic-elementwise-add.rst), and the loop is then a device loop."""
    first, last = (0, start) if stop is None else (start, stop)
    if not isinstance(first, VirtualRegister) and not isinstance(last, VirtualRegister):
        return _range(name, start, stop, step, depth=5)
    warnings.warn(f"nl.{name} of a register is deprecated; use nl.fori_loop", DeprecationWarning, stacklevel=4)
    return DynamicRange(_bound(first, "start", name), _bound(last, "stop", name), _step(step, name))


def _range(name: str, start: Any, stop: Any, step: Any, depth: int = 4) -> range:
    warnings.warn(f"nl.{name} is deprecated; use range", DeprecationWarning, stacklevel=depth)
    first, last = (0, start) if stop is None else (start, stop)
    if isinstance(first, VirtualRegister) or isinstance(last, VirtualRegister):
        raise not_python(f"a bound of nl.{name}", "write nl.fori_loop(lower, upper, body)")
    increment = integer(step, "step", name)
    if increment == 0:
        raise ArgumentError("loop.step", f"nl.{name}: step is 0", fix="use another step")
    return range(integer(first, "start", name), integer(last, "stop", name), increment)


def _loop_sink(name: str, body: Any) -> Sink:
    sink = current_sink(f"nl.{name}")
    if not callable(body):
        raise ArgumentError(
            "loop.body",
            f"nl.{name}: body_fun is {shown(body)}, not a function",
            fix="pass a function: "
            + (
                f"lambda i: {body.issued.instruction.label}(...)"
                if isinstance(body, NkiInstruction)
                else "def body(i): ..."
            ),
        )
    _check_arity(name, body)
    return sink


def _check_arity(name: str, body: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(body)
    except ValueError:  # functions of C without a signature
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ArgumentError(
            "loop.body",
            f"nl.{name}: body_fun has the parameters {signature}",
            rule="the body is called with one argument: the index, or the register of the condition",
            fix="write def body(i): ...",
        ) from None


def _bound(value: Any, name: str, function: str) -> int | VirtualRegister:
    return value if isinstance(value, VirtualRegister) else integer(value, name, function)


def _record(bound: int | VirtualRegister) -> int | VirtualRegister:
    return bound.record if isinstance(bound, VirtualRegister) else bound


def _step(step: Any, function: str) -> int:
    if isinstance(step, int | np.integer) and not isinstance(step, bool) and step >= 1:
        return int(step)
    raise FrontendError(
        "loop.step",
        f"nl.{function}: step is {one_line(repr(step))}",
        rule="device loops count up by a constant",
        source="nki/deep-dives/nki-dynamic-loops.rst",
        fix="use an int of at least 1",
    )


def _check_no_result(result: Any) -> None:
    if result is not None and not isinstance(result, NkiInstruction):
        raise FrontendError(
            "loop.result",
            f"the body of nl.fori_loop returns {type(result).__name__}",
            rule="a body returns nothing; each trip would make another value",
            fix="write results into a tensor that was allocated outside the loop",
        )

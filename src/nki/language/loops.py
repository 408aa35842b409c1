"""Loops: the iterators that unroll, the loops that run on the device, and no_reorder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import nki.isa as nisa
from nki.core.errors import ArgumentError, FrontendError
from nki.core.register import VirtualRegister
from nki.language.arguments import integer, public
from nki.spec.instruction import NkiInstruction
from nki.spec.sink import Sink, current_sink


@public
def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Deprecated: Python's range."""
    return _range("affine_range", start, stop, step)


@public
def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Deprecated: Python's range."""
    return _range("sequential_range", start, stop, step)


@public
def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Deprecated: Python's range."""
    return _range("static_range", start, stop, step)


@public
def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> NoReturn:
    """Deprecated: `fori_loop`. An iterator cannot run its body on the device, so this always raises FrontendError."""
    bounds = f"0, {start}" if stop is None else f"{start}, {stop}"
    raise FrontendError(
        "loop.dynamic-range",
        f"nl.dynamic_range({bounds}, step={step}) is iterated by Python, which cannot make a loop on the device",
        rule="the body of a device loop is a function",
        source="release-notes/components/nki.rst 0.6.0",
        fix="write def body(i): ... and nl.fori_loop(lower, upper, body, step)",
    )


@public
def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[VirtualRegister], NkiInstruction | None], step: int = 1
) -> None:
    """``for i in range(lower, upper, step): body_fun(i)`` on the device.

    The body is traced once. It gets the index as a register that cannot be written, for use as a ``scalar_offset`` or
    in ``tensor.select``; what one trip leaves to the next is in tensors outside. Tensors that the body allocates are
    unknown after it.

    Args:
        lower, upper: ints or registers; `upper` is not reached.
        body_fun: function of the index, returns None.
        step: positive int.
    """
    sink = _loop_sink("fori_loop", body_fun)
    if integer(step, "step", "fori_loop") < 1:
        raise ArgumentError(
            "loop.step", f"nl.fori_loop: step is {step}", rule="device loops count up", fix="use a step of at least 1"
        )
    first, last = _bound(lower, "lower"), _bound(upper, "upper")

    def body(index: VirtualRegister) -> None:
        _check_no_result(body_fun(index))

    sink.for_loop(first, last, int(step), body)


@public
def while_loop(init: VirtualRegister, body_fun: Callable[[VirtualRegister], VirtualRegister]) -> None:
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
            f"nl.while_loop: init is {type(init).__name__} {init!r}",
            rule="the condition is a register",
            fix=f"make one with nisa.register_alloc({init!r})" if isinstance(init, int) else "load it into a register",
        )
    condition = nisa.register_alloc()
    nisa.register_move(condition, init)

    def body(register: VirtualRegister) -> VirtualRegister:
        following = body_fun(register)
        if not isinstance(following, VirtualRegister):
            raise FrontendError(
                "loop.result",
                f"the body of nl.while_loop returns {type(following).__name__} {following!r}",
                rule="the body returns the register with the next condition",
                fix="load the condition with nisa.register_load(register, tensor), and return the register",
            )
        if following is not register:
            nisa.register_move(register, following)
        return register

    sink.while_loop(condition, body)


@contextmanager
def _ordered(sink: Sink) -> Iterator[None]:
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


def _range(name: str, start: Any, stop: Any, step: Any) -> range:
    warnings.warn(f"nl.{name} is deprecated; use range", DeprecationWarning, stacklevel=4)
    first, last = (0, start) if stop is None else (start, stop)
    increment = integer(step, "step", name)
    if increment == 0:
        raise ArgumentError("loop.step", f"nl.{name}: step is 0", fix="use another step")
    return range(integer(first, "start", name), integer(last, "stop", name), increment)


def _loop_sink(name: str, body: Any) -> Sink:
    sink = current_sink(f"nl.{name}")
    if not callable(body):
        raise ArgumentError(
            "loop.body",
            f"nl.{name}: body_fun is {type(body).__name__} {body!r}",
            fix="pass a function: def body(i): ...",
        )
    if sink.no_reorder_depth:
        raise FrontendError(
            "loop.no-reorder",
            f"nl.{name} inside nl.no_reorder",
            rule="device loops are not supported inside no_reorder",
            source="nki/api/nki/language/__init__.py no_reorder",
            fix="put no_reorder into the body of the loop, or unroll with range",
        )
    return sink


def _bound(value: Any, name: str) -> int | VirtualRegister:
    return value if isinstance(value, VirtualRegister) else integer(value, name, "fori_loop")


def _check_no_result(result: Any) -> None:
    if result is not None and not isinstance(result, NkiInstruction):
        raise FrontendError(
            "loop.result",
            f"the body of nl.fori_loop returns {type(result).__name__}",
            rule="a body returns nothing; each trip would make another value",
            fix="write results into a tensor that was allocated outside the loop",
        )

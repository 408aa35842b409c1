"""Places in the user's source: which frames count, and how a chain of calls is shown."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import nki.language as nl
from nki.core.errors import NkiError
from nki.core.source import Frame, Location, is_internal, of_function


def chain(*lines: int) -> list[str]:
    """The chain of calls from lines of a file that does not exist, innermost first."""
    return Location(tuple(Frame("nowhere.py", f"f{line}", line) for line in (0, *lines))).chain().splitlines()


def test_short_chains_are_shown_whole() -> None:
    assert chain(*range(1, 10)) == [f"  called from nowhere.py:{n}:1 in f{n}" for n in range(1, 10)]


def test_long_chains_lose_their_middle() -> None:
    shown = chain(*range(1, 21))
    assert shown[:6] == chain(*range(1, 7))
    assert shown[6] == "  ... 11 more calls"
    assert shown[7:] == [f"  called from nowhere.py:{n}:1 in f{n}" for n in (18, 19, 20)]


def test_recursion_is_one_line() -> None:
    assert chain(*[5] * 30, 7) == ["  called from nowhere.py:5:1 in f5, 30 times", "  called from nowhere.py:7:1 in f7"]


def test_what_the_user_executes_is_the_users_and_what_dataclasses_make_is_not() -> None:
    space: dict[str, object] = {}
    exec("def kernel(a):\n    return a\n", space)
    assert not is_internal(space["kernel"].__code__)  # type: ignore[attr-defined]
    made = dataclass(type("Sizes", (), {"__annotations__": {"rows": int}}))
    assert made.__init__.__code__.co_filename == "<string>"
    assert is_internal(made.__init__.__code__)


def decorated(function: object) -> object:
    return function


@decorated
@decorated
def below_two_decorators() -> None:
    """Its line is that of `def`."""


def test_a_definition_is_below_its_decorators() -> None:
    frame = of_function(below_two_decorators.__code__).frames[0]
    assert frame.line == below_two_decorators.__code__.co_firstlineno + 2
    assert (frame.column, frame.end_column) == (0, len("def below_two_decorators() -> None:"))


def test_an_error_outside_of_a_kernel_has_one_frame() -> None:
    with pytest.raises(NkiError) as caught:
        nl.ndarray((4, 8), nl.float32)
    assert [frame.function for frame in caught.value.location.frames] == [
        "test_an_error_outside_of_a_kernel_has_one_frame"
    ]

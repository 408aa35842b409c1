"""When a function is compiled: what exists already is used, and compiling waits until NumPy has spent enough."""

from __future__ import annotations

from collections.abc import Callable

from nki.native.objects.library import Library
from nki.native.primitives.module import MODULE
from nki.native.records.forms import Form, Native
from nki.native.records.templates import Template
from nki.native.tiering.compilation_policy import Functions

ENOUGH = 0.05
"""Seconds in NumPy that are worth one compilation."""


class Shelf(Library):
    """Has the base module, and the functions of some names."""

    def __init__(self, *names: str) -> None:
        super().__init__(None, False)
        self.names = {MODULE, *names}
        self.made: list[str] = []

    def has(self, name: str) -> bool:
        return name in self.names

    def address(self, name: str, text: Callable[[], str]) -> int:
        self.made.append(name)
        return 64


def form(name: str) -> Form:
    """A form whose function has this name, which no other test uses."""
    return Form(Native(Template(name, lambda: "", (), ()), (), False))


def test_nothing_is_compiled_for_what_costs_little() -> None:
    functions, asked = Functions(Shelf()), form("costs little")
    assert not functions.ready(asked)
    functions.spend(asked, ENOUGH / 10)
    assert not functions.ready(asked)
    assert not asked.function


def test_what_took_long_is_compiled() -> None:
    functions, asked = Functions(Shelf()), form("took long")
    functions.spend(asked, ENOUGH)
    assert functions.ready(asked)
    assert asked.function == 64


def test_what_is_needed_again_is_compiled_sooner() -> None:
    functions, asked = Functions(Shelf()), form("needed again")
    functions.spend(asked, ENOUGH / 10)
    assert not functions.ready(asked)
    assert functions.ready(asked, again=True)


def test_even_then_not_for_nothing() -> None:
    functions, asked = Functions(Shelf()), form("hardly used")
    functions.spend(asked, ENOUGH / 1000)
    assert not functions.ready(asked, again=True)


def test_what_is_there_is_used_at_once() -> None:
    shelf = Shelf("there")
    assert Functions(shelf).ready(form("there"))
    assert shelf.made == ["there"]


def test_equal_functions_are_counted_together() -> None:
    functions = Functions(Shelf())
    for _ in range(2):
        functions.spend(form("shared"), ENOUGH / 2)
    assert functions.ready(form("shared"))

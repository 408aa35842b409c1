"""Numbers of run time: what ``nt.scalar`` makes of a tile, and what loops over such numbers count with.

A `Scalar` is ``const + sum(factor * register)``, so that it is an index as `Index` is one: ``x[i * 128 + i_p, i_f]`` is
an address with a register in it, and ``x[i * 128 : (i + 1) * 128]`` has 128 rows. Registers compute what is not affine.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, ClassVar, NoReturn

from nki.beta1.errors import Beta1TypeError, Beta1ValueError, refused
from nki.beta1.tensors.index import Index
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.core.source import Location
from nki.frontend.loops.regions import BodyPass
from nki.frontend.trace import Tracer
from nki.isa import NkiScalar, register_alloc
from nki.spec.sink import current_sink

WHOLE_NUMBERS = "numbers of run time are whole, and have 32 bits"


class Root:
    """A register that a number of run time is computed from.

    Attributes:
        register: keeps its value until the pass is over in which it was written.
        body: that pass.
    """

    __slots__ = ("body", "register")

    def __init__(self, register: VirtualRegister, body: BodyPass) -> None:
        self.register = NkiScalar(register)
        self.body = body


class Scalar:
    """A whole number that is known when the kernel runs.

    Attributes:
        terms: registers and their factors.
        const: is added to them; the number is known already where there are no terms.
    """

    __slots__ = ("const", "terms")
    __array_ufunc__ = None  # NumPy's integers leave the operators to this class

    asked: ClassVar[list[Callable[[Scalar, FrameType], bool]]] = []
    """Who answers ``while number:``; of `nki.beta1.tracing`, which is above this module."""

    def __init__(self, terms: Sequence[tuple[Root, int]] = (), const: int = 0) -> None:
        self.terms = tuple([(root, factor) for root, factor in terms if factor])
        self.const = const

    @staticmethod
    def of(register: VirtualRegister) -> Scalar:
        """The number that a register holds in the pass that runs."""
        return Scalar([(Root(register, _tracer().body), 1)])

    @property
    def known(self) -> bool:
        """Whether it is a constant."""
        return not self.terms

    def check(self) -> None:
        """Raise Beta1Error for a number that was made in a loop that has ended."""
        for root, _ in self.terms:
            if not _tracer().runs(root.body):
                raise out_of_scope("a number of run time was made in a loop that has ended")

    def register(self) -> NkiScalar:
        """A register with its value, for instructions."""
        self.check()
        if not self.terms:
            return NkiScalar(register_alloc(self.const))
        total: Any = self.const
        for root, factor in self.terms:
            part = root.register if factor == 1 else root.register * factor
            total = part if type(total) is int and total == 0 else part + total
        found: NkiScalar = total
        return found

    # --- arithmetic

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Index):
            return RunTimeIndex(self, other)
        number = as_scalar(other)
        if number is None:
            return NotImplemented
        factors = dict(self.terms)
        for root, factor in number.terms:
            factors[root] = factors.get(root, 0) + factor
        return Scalar(list(factors.items()), self.const + number.const)

    __radd__ = __add__

    def __neg__(self) -> Scalar:
        return self * -1

    def __pos__(self) -> Scalar:
        return self

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Index):
            return RunTimeIndex(self, -other)
        number = as_scalar(other)
        return NotImplemented if number is None else self + number * -1

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Index):
            raise not_affine("a number of run time times an index tensor")
        number = as_scalar(other)
        if number is None:
            return NotImplemented
        if not (self.known or number.known):
            return _computed(operator.mul, self, number)
        factor, scaled = (number.const, self) if number.known else (self.const, number)
        return Scalar([(root, own * factor) for root, own in scaled.terms], scaled.const * factor)

    __rmul__ = __mul__

    def __invert__(self) -> Scalar:
        return self * -1 - 1

    def __bool__(self) -> bool:
        return self.asked[0](self, sys._getframe(1))

    def __index__(self) -> NoReturn:
        raise refused(
            "dynamic_control_flow_not_supported",
            "a number of run time is used where Python needs an int",
            "use it in an index, or for the trips of a loop: for i in nl.sequential_range(nt.scalar(tile))",
            rule="its value is known when the kernel runs",
            kind=Beta1TypeError,
        )

    def __iter__(self) -> NoReturn:
        raise refused(
            "dynamic_control_flow_not_supported",
            "a number of run time is iterated over",
            "write for i in nl.sequential_range(nt.scalar(tile))",
            kind=Beta1TypeError,
        )

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return str(self.const) if self.known else "a number of run time"

    def run_time_index(self) -> tuple[Index, RunTimeValue]:
        """As the index of a tensor: a position that is known, and what is added at run time."""
        return RunTimeIndex(self).run_time_index()


class RunTimeValue:
    """What is added to the index of a dimension at run time.

    Attributes:
        value: a `nki.beta1.tensors.tensor.Tensor` on chip, or a `Scalar` without a constant.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def is_number(self) -> bool:
        """Whether it is one number, and no tile of them."""
        return type(self.value) is Scalar

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values, as the axes of the access see it."""
        return () if self.is_number else self.value.shape

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunTimeValue) or self.is_number != other.is_number:
            return False
        return self.value.terms == other.value.terms if self.is_number else self.value is other.value

    def __hash__(self) -> int:
        return hash(self.value.terms) if self.is_number else id(self.value)


class RunTimeIndex:
    """The values of a tile, or a number of run time, with an index expression added.

    Attributes:
        value: a `nki.beta1.tensors.tensor.Tensor`, or a `Scalar` without a constant.
        added: the index expression.
    """

    __slots__ = ("added", "value")
    __array_ufunc__ = None

    value: Any
    added: Index

    def __init__(self, value: Any, added: Index | None = None) -> None:
        self.value = value
        self.added = Index(0, (), ()) if added is None else added
        if type(value) is Scalar:
            self.value, self.added = Scalar(value.terms), self.added + value.const

    def run_time_index(self) -> tuple[Index, RunTimeValue]:
        """The index expression, and what is added at run time."""
        return self.added, RunTimeValue(self.value)

    def __add__(self, other: Any) -> Any:
        if type(other) is RunTimeIndex and type(self.value) is type(other.value) is Scalar:
            return RunTimeIndex(self.value + other.value, self.added + other.added)
        if type(other) is Scalar and type(self.value) is Scalar:
            return RunTimeIndex(self.value + other, self.added)
        if isinstance(other, Index) or is_whole(other):
            return RunTimeIndex(self.value, self.added + other)
        return NotImplemented

    __radd__ = __add__

    def __neg__(self) -> RunTimeIndex:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other

    def __mul__(self, other: Any) -> RunTimeIndex:
        if type(self.value) is not Scalar or not is_whole(other):
            raise not_affine("an index of run time with such a factor")
        return RunTimeIndex(self.value * other, self.added * other)

    __rmul__ = __mul__
    __hash__ = object.__hash__


def _tracer() -> Tracer:
    """What traces the kernel that runs."""
    sink = current_sink("nt.scalar")
    assert isinstance(sink, Tracer), "kernels are traced by it alone"
    return sink


def as_scalar(value: Any) -> Scalar | None:
    """A number of run time, or a whole number, as the former; None for anything else.

    Raises:
        Beta1Error: a float ("beta1.argument").
    """
    if type(value) is Scalar:
        return value
    if is_whole(value):
        return Scalar((), int(value))
    if isinstance(value, float):
        raise refused(
            "argument",
            f"a number of run time is combined with {value!r}",
            "compute it in a tile, and make a number of that: nt.scalar(tile)",
            rule=WHOLE_NUMBERS,
            kind=Beta1TypeError,
        )
    return None


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number of Python or NumPy."""
    if isinstance(value, Scalar | Index):
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def out_of_scope(what: str, location: Location | None = None) -> Exception:
    """The error for what was made in a loop over numbers of run time, and is used when that has ended."""
    return refused(
        "local_variable_used_out_of_scope",
        what,
        "make it before the loop, and assign to it in the loop: tile[...] = value",
        rule="what is made in the body of a loop over a number of run time ends with its trip",
        location=location,
    )


def not_affine(what: str) -> Exception:
    """The error for an index that is no sum."""
    return refused(
        "unsupported_expression_in_index",
        f"{what} is no index",
        "add index tensors to a number of run time: i * 128 + nl.arange(128)[:, None]",
        rule="an index is a sum of constants times nl.arange, nl.mgrid, loop variables and program ids",
    )


def _computed(function: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """What registers compute: numbers that are known take part as constants."""
    a, b = as_scalar(one), as_scalar(other)
    if a is None or b is None:
        return NotImplemented
    if a.known and b.known:
        return Scalar((), int(function(a.const, b.const)))
    values = [each.const if each.known else each.register() for each in (a, b)]
    return Scalar.of(function(*values).record)


def _operator(name: str) -> None:
    function = getattr(operator, name + "_" if name in ("and", "or") else name)
    setattr(Scalar, f"__{name}__", lambda self, other: _computed(function, self, other))
    setattr(Scalar, f"__r{name}__", lambda self, other: _computed(function, other, self))


def _comparison(name: str) -> None:
    function = getattr(operator, name)

    def compared(self: Scalar, other: Any) -> Any:
        if isinstance(other, Index | RunTimeIndex):
            raise in_a_mask()
        return _computed(function, self, other)

    setattr(Scalar, f"__{name}__", compared)
    setattr(RunTimeIndex, f"__{name}__", _masked)


def _masked(self: RunTimeIndex, other: Any) -> NoReturn:
    raise in_a_mask()


def in_a_mask() -> Exception:
    """The error for a mask of numbers of run time."""
    return refused(
        "unsupported_expression_in_mask",
        "a mask compares a number of run time",
        "let the loop end before the last, ragged tile, or choose with nl.where from values that a tile holds",
        rule="a mask is known while the kernel is traced",
        kind=Beta1ValueError,
    )


@shown.register
def _(value: Scalar) -> str:
    return repr(value)


for _name in ("floordiv", "mod", "lshift", "rshift", "and", "or", "xor"):
    _operator(_name)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _comparison(_name)

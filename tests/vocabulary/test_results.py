"""What instructions return is no tensor: using it as one says where the result is, and tools may ask it anything."""

from __future__ import annotations

import copy
import inspect
import linecache
import operator
import pickle
import pprint
import unittest.mock
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.spec.instruction import NkiInstruction
from tests.support import both, rejection

X = np.arange(32, dtype=np.float32).reshape(4, 8)

ATTRIBUTES = ["shape", "dtype", "buffer", "ap", "reshape", "select", "T", "astype", "sum"]
OPERATORS: list[Callable[[Any], Any]] = [
    lambda e: e + 1,
    lambda e: 2.0 * e,
    lambda e: e - e,
    lambda e: np.float32(2) / e,
    lambda e: e**2,
    lambda e: e @ e,
    lambda e: e & 1,
    lambda e: e << 1,
    lambda e: e < 3,
    lambda e: e >= 3,
    lambda e: -e,
    abs,
    lambda e: e[0:2],
    lambda e: e[:, 0],
    lambda e: operator.setitem(e, 0, 1.0),
    lambda e: operator.iadd(e, 1),
    list,
]


def issued(a: Any) -> NkiInstruction:
    tile = nl.load(a)
    return nisa.activation(dst=nl.ndarray(a.shape, a.dtype), op=nl.exp, data=tile)


def handle() -> NkiInstruction:
    found: list[NkiInstruction] = []

    def kernel(a: Any) -> Any:
        found.append(issued(a))
        return a

    nki.simulate(kernel)(X)
    return found[0]


def check(error: NkiError) -> None:
    assert error.code == "instruction.result"
    assert error.fix == "pass the dst of the instruction: it wrote there, and returned no tensor"
    assert "the result of nisa.activation" in error.message


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_of_tensors(name: str) -> None:
    def kernel(a: Any) -> Any:
        e = issued(a)
        assert not hasattr(e, name)
        return getattr(e, name)

    error = rejection(kernel, X)
    check(error)
    assert isinstance(error, AttributeError)
    frame = error.location.frames[0]
    assert linecache.getline(frame.file, frame.line)[frame.column : frame.end_column] == "getattr(e, name)"


@pytest.mark.parametrize("use", OPERATORS)
def test_an_operator_of_python(use: Callable[[Any], Any]) -> None:
    error = rejection(lambda a: use(issued(a)), X)
    check(error)
    assert isinstance(error, TypeError)


def test_what_the_message_says_works() -> None:
    def kernel(a: Any) -> Any:
        dst, out = nl.ndarray(a.shape, a.dtype), nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        first = nisa.tensor_scalar(dst=dst, data=nl.load(a), op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=out, src=dst).depends_on(first)
        return out

    np.testing.assert_array_equal(both(kernel, X), X + 1)


def test_tools_may_ask_it_anything() -> None:
    e = handle()
    asked = ("__array__", "__array_interface__", "__torch_function__", "__len__", "_repr_html_", "aval", "nonsense")
    assert not any(hasattr(e, name) for name in asked)
    assert not isinstance(e, Iterable | Sequence)
    assert repr(e) == "NkiInstruction(activation)" and pprint.pformat([e]) == f"[{e!r}]"
    assert e and e == e and e != 1 and e in [e] and len({e, e}) == 1
    assert np.asarray(e).shape == () and np.asarray(e).dtype == object
    assert copy.copy(e).issued is e.issued
    assert dict(inspect.getmembers(e))["issued"] is e.issued
    assert unittest.mock.create_autospec(e, spec_set=True).issued is not None
    with pytest.raises(AttributeError, match=r"^'NkiInstruction' object has no attribute 'nonsense'$") as caught:
        e.nonsense  # noqa: B018
    assert not isinstance(caught.value, NkiError)


def test_copies_and_pickles_go_through_the_protocols_of_any_object() -> None:
    """With something that can be pickled in it, as a record of an instruction is after a trace."""
    handled = NkiInstruction.of("record")  # type: ignore[arg-type]
    for again in (copy.copy(handled), copy.deepcopy(handled), pickle.loads(pickle.dumps(handled))):
        assert again is not handled and again.issued == "record"
    assert not hasattr(object.__new__(NkiInstruction), "issued")

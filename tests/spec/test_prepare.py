"""The conversion that is generated for an instruction does what its converters do one by one."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.spec import instruction as declaring
from nki.spec.convert import CONVERTERS, Parameter, Prepare, prepare_of
from nki.spec.instruction import REGISTRY, Instruction
from nki.spec.signature import Key, Seen, add
from nki.spec.sink import Sink
from tests.isa.executed import one_target_each
from tests.isa.registry import Breaks
from tests.support import environment


class Compared:
    """Stands for `prepare_of`: every conversion is made a second time, without anything generated.

    Attributes:
        prepared: the instructions that were prepared with a key.
        keys, plain: for every key of one kind, those of the other that came with it.
    """

    def __init__(self) -> None:
        self.prepared: set[str] = set()
        self.keys: dict[Key, set[Key]] = defaultdict(set)
        self.plain: dict[Key, set[Key]] = defaultdict(set)
        self._kept: list[Any] = []  # so that no identity in a key is given again

    def check(self) -> None:
        """Keys of one kind and of the other tell the same calls apart."""
        assert all(len(plain) == 1 for plain in self.keys.values()), "two that differ have one key"
        assert all(len(keys) == 1 for keys in self.plain.values()), "two that are alike have two keys"

    def __call__(self, instruction: Hashable, made: type, parameters: Sequence[Parameter]) -> Prepare:
        generated = prepare_of(instruction, made, parameters)
        assert isinstance(instruction, Instruction)

        def prepare(values: Sequence[Any], sink: Sink) -> tuple[Any, Key | None]:
            arguments, key = generated(values, sink)
            expected, plain = _one_by_one(values, parameters, sink)
            assert type(arguments) is made and len(arguments) == len(expected)
            for found, one in zip(arguments, expected, strict=True):
                assert type(found) is type(one) and (found is one or found == one or one != one), (found, one)
            assert (key is None) == (plain is None)
            if key is not None and plain is not None:
                self.prepared.add(instruction.name)
                self._kept += [arguments, sink.target]
                plain = (instruction, id(sink.target), *plain)
                self.keys[key].add(plain)
                self.plain[plain].add(key)
            return arguments, key

        return prepare


def _one_by_one(values: Sequence[Any], parameters: Sequence[Parameter], sink: Sink) -> tuple[list[Any], Key | None]:
    """The converted arguments, and what tells them from others unless that is not known."""
    arguments: list[Any] = []
    key: list[Any] = []
    seen: Seen = {}
    static = True
    for value, parameter in zip(values, parameters, strict=True):
        if (value is None and parameter.optional) or (value is parameter.default and parameter.as_declared):
            arguments.append(value)
            key.append(repr(value))
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments.append(CONVERTERS[parameter.operand.kind](value, parameter.name, parameter.operand, sink))
        if parameter.name != "name":
            static = add(key, arguments[-1], seen) and static
    return arguments, tuple(key) if static else None


def _forget() -> None:
    """Every instruction makes its conversion anew at its next call."""
    for instruction in REGISTRY.values():
        for each in (instruction, *(instruction.before or ())[1:]):
            vars(each).pop("_prepare", None)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compared]:
    """What compares every conversion, in place of what makes them."""
    found = Compared()
    monkeypatch.setattr(declaring, "prepare_of", found)
    _forget()
    yield found
    monkeypatch.undo()
    _forget()


@pytest.mark.slow
def test_generated_conversions_do_what_converters_do(compared: Compared) -> None:
    for example, target in one_target_each():
        made = nki.simulate(nki.jit(example.kernel))
        with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                (made if example.lnc is None else made[example.lnc])(*copy.deepcopy(example.arguments()))
            except NkiError:
                assert isinstance(example, Breaks)
    with_tensors = {name for name, declared in REGISTRY.items() if declared.tensor_positions}
    assert with_tensors - compared.prepared == {"register_load", "register_store"}, "their addresses are not static"
    compared.check()


def test_calls_that_are_nearly_alike_have_keys_of_their_own(compared: Compared) -> None:
    def kernel(a: Any) -> Any:
        x, y, z = (nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf) for _ in range(3))
        nisa.dma_copy(dst=x, src=a)
        nisa.dma_copy(dst=y, src=a)
        for first, second in ((x, x), (x, y), (y, x), (y, z), (z, z)):
            nisa.memset(dst=z, value=1.0)
            nisa.tensor_tensor(dst=z, data1=first, data2=second, op=nl.add)
        for number in (0.0, -0.0, 0, 1.0, 1, True, float("nan"), float("inf")):
            nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=number)
        for reverse in (True, False):
            nisa.tensor_scalar(dst=y, data=x, op0=nl.subtract, operand0=2.0, reverse0=reverse)
        for engine in (nisa.engine.vector, nisa.engine.scalar, nisa.engine.unknown):
            nisa.tensor_copy(dst=y, src=x, engine=engine)
        for first in (0, 8):
            nisa.tensor_copy(dst=y[:, 0:8], src=x[:, first : first + 8])
            nisa.tensor_copy(dst=x[:, 0:8], src=x[:, first + 8 : first + 16])
        out = nl.ndarray((256, 64), nl.float32, buffer=nl.shared_hbm)
        for row in (0, 128):
            nisa.dma_copy(dst=out[row : row + 128], src=x)
        nisa.dma_copy(dst=out[0:64], src=out[128:192])
        nisa.dma_copy(dst=out[64:128], src=out[192:256])
        nisa.dma_copy(dst=out[64:128], src=out[128:192])
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nki.simulate(nki.jit(kernel))(np.ones((128, 64), np.float32))
    compared.check()
    assert len(compared.keys) == 5 + 1 + 8 + 2 + 3 + 4 + 3

"""What was found legal once stays unverified only as long as nothing that a rule reads is different."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from itertools import count
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.core.source import Location
from nki.core.tensor import Buffer, View
from nki.core.tensor import MemoryRegion as Region
from nki.spec import instruction as declaring
from nki.spec import signature
from nki.spec.instruction import REGISTRY
from nki.spec.program import Issued
from nki.spec.rule import Finding
from nki.spec.signature import Key, Seen, add
from nki.spec.verify import verify
from nki.target.load import load_target
from tests.isa.executed import one_target_each
from tests.isa.registry import Breaks, Legal
from tests.spec.pieces import hbm, sbuf
from tests.support import environment

SHOWN = {"region", "shape", "address", "row_bytes", "on_chip", "layout"}
"""Fields of buffers that are part of a signature, or follow from it."""

HIDDEN = {field.name for field in dataclasses.fields(Buffer)} - SHOWN

_NUMBERS = count(1_000_000)


class Secretive(Buffer):
    """A buffer of which only that can be read which is part of a signature."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in HIDDEN:
            raise AssertionError(f"a rule reads {name} of a buffer, which is not part of the signature")
        return super().__getattribute__(name)


def _other(buffer: Buffer, kind: type[Buffer]) -> Buffer:
    """A buffer that differs in everything that is not part of a signature."""
    number = next(_NUMBERS)
    changed = dataclasses.replace(buffer, id=number, name=f"other{number}", location=Location(), trace=object())
    made = object.__new__(kind)
    for field in dataclasses.fields(Buffer):
        object.__setattr__(made, field.name, getattr(changed, field.name))
    return made


class Disguise:
    """The same arguments, as far as signatures go: other buffers, other names, other places in HBM."""

    def __init__(self, kind: type[Buffer]) -> None:
        self._kind = kind
        self._buffers: dict[Buffer, Buffer] = {}

    def of(self, value: Any) -> Any:
        """One argument."""
        if type(value) is View:
            if value.buffer not in self._buffers:
                self._buffers[value.buffer] = _other(value.buffer, self._kind)
            shift = 0 if value.buffer.on_chip else 3
            return value._replace(buffer=self._buffers[value.buffer], offset=value.offset + shift)
        return tuple([self.of(item) for item in value]) if type(value) is tuple else value

    def issued(self, issued: Issued) -> Issued:
        """An instruction, whose engine is chosen again."""
        given = issued.arguments
        arguments = type(given)._make([self.of(value) for value in given])
        if "name" in given._fields:
            arguments = arguments._replace(name="disguised")
        return issued._replace(arguments=arguments)


class Watched:
    """Stands for `verify` while kernels run: checks every instruction in disguise as well."""

    def __init__(self) -> None:
        self.instructions: set[str] = set()

    def __call__(self, issued: Issued, target: Any, disabled: frozenset[str] = frozenset()) -> list[Finding]:
        findings = verify(issued, target, disabled)
        if _key(issued, target) is not None:
            self.instructions.add(issued.instruction.name)
            again = Disguise(Buffer if findings else Secretive).issued(issued)
            assert _key(again, target) == _key(issued, target)
            assert issued.instruction.engine_for(again.arguments, target) is issued.engine
            assert [f.code for f in verify(again, target, disabled)] == [f.code for f in findings]
        return findings


def key_of(instruction: Any, target: Any, arguments: tuple[Any, ...]) -> Key | None:
    """As an instruction that is called makes it from its arguments."""
    key: list[Any] = [instruction, id(target)]
    seen: Seen = {}
    return tuple(key) if all([add(key, value, seen) for value in arguments]) else None


def _key(issued: Issued, target: Any) -> Any:
    ruled = [value for name, value in zip(issued.arguments._fields, issued.arguments, strict=True) if name != "name"]
    return key_of(issued.instruction, target, tuple(ruled))


def test_rules_read_nothing_but_what_is_part_of_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr(declaring, "verify", watched)
    for example, target in one_target_each():
        monkeypatch.setattr(signature, "_LEGAL", {})
        _run(example, target)
    ruled = {name for name, declared in REGISTRY.items() if declared.tensor_positions and declared.rules}
    assert ruled - watched.instructions == {"register_load", "register_store"}, "registers are verified every time"
    assert View._fields == ("buffer", "dtype", "shape", "strides", "offset", "dynamic"), "they are all in the key"


def test_the_disguise_hides_what_is_not_part_of_a_signature() -> None:
    view = Disguise(Secretive).of(sbuf(128, 64))
    assert view.start_partition == 0 and view.nbytes == 128 * 64 * 4
    for name in HIDDEN:
        with pytest.raises(AssertionError, match=name):
            getattr(view.buffer, name)


def _run(example: Legal | Breaks, target: str) -> None:
    made = nki.simulate(nki.jit(example.kernel))
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            (made if example.lnc is None else made[example.lnc])(*copy.deepcopy(example.arguments()))
        except NkiError:
            assert isinstance(example, Breaks)


def _differs(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    target = load_target("trn2")
    one, two = key_of("x", target, first), key_of("x", target, second)
    assert one is not None and two is not None and hash(one) is not None
    return one != two


def test_what_rules_may_read_is_part_of_the_key() -> None:
    tile, other, far = sbuf(128, 64), sbuf(128, 64), hbm(256, 64)
    assert not _differs((tile,), (other,))
    assert not _differs((far,), (far._replace(offset=64),))
    assert not _differs((far, far), (far._replace(offset=64), far._replace(offset=64)))
    assert _differs((far, far), (far, far._replace(offset=64)))
    assert _differs((tile, tile), (tile, other))
    assert _differs((tile._replace(shape=(64, 64)),), (tile,))
    assert _differs((tile._replace(shape=(128, 8)),), (tile._replace(shape=(128, 8), offset=8),))
    assert _differs((tile,), (sbuf(128, 64, dtype="int32"),))
    placed = dataclasses.replace(tile.buffer, address=(0, 64))
    assert _differs((tile,), (tile._replace(buffer=placed),))
    assert _differs((tile,), (tile._replace(buffer=dataclasses.replace(tile.buffer, region=Region.psum)),))
    assert _differs((1,), (1.0,)) and _differs((1,), (True,)) and _differs((0.0,), (-0.0,))
    assert _differs(((1, 2),), (((1,), 2),))
    assert _differs((nisa.engine.vector,), (nisa.engine.scalar,))


def test_an_illegal_instruction_is_found_after_a_legal_one_like_it() -> None:
    def kernel(a: Any, width: int) -> Any:
        out = nl.ndarray((128, 64), a.dtype, buffer=nl.shared_hbm)
        x, y = (nl.ndarray((128, 64), a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=x, src=a)
        nisa.tensor_copy(dst=y, src=x)
        nisa.tensor_copy(dst=y, src=x)
        nisa.tensor_tensor(dst=y, data1=x[:, 0:width], data2=x, op=nl.add)
        nisa.dma_copy(dst=out, src=y)
        return out

    a = np.ones((128, 64), np.float32)
    for _ in range(3):
        assert (nki.simulate(nki.jit(kernel))(a, 64) == 2).all()
        with pytest.raises(NkiError) as caught:
            nki.simulate(nki.jit(kernel))(a, 32)
        assert caught.value.code == "tensor_tensor.shapes"

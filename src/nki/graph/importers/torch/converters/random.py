"""ATen's random numbers: Threefry of a key that is an input of the program, so that each run has others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx import Node

from nki.core.dtypes import DType, bfloat16, bool_, float16, float32, int32, uint8, uint32
from nki.graph.importers.torch.builder import Builder
from nki.graph.importers.torch.table import CONVERTERS, Call, converts, refused, wide
from nki.graph.importers.torch.types import tensor_type, torch_dtype
from nki.graph.ir import TensorType, Value

# Threefry 2x32 with 20 rounds: J. K. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_DIGITS: Mapping[DType, int] = {float16: 11, bfloat16: 8}
"""Binary digits of small floats: numbers of more of them would be rounded, some of them up to 1."""


def threefry(b: Builder, key: tuple[Value, Value], counter: tuple[Value, Value]) -> tuple[Value, Value]:
    """Two words of random bits for two words of a counter; keys are scalars."""
    keys = (*key, b.binary("xor", b.binary("xor", *key), _PARITY))
    x, y = b.add(counter[0], keys[0]), b.add(counter[1], keys[1])
    for block in range(5):
        for distance in _ROTATIONS[block % 2]:
            x = b.add(x, y)
            left, right = b.binary("shift_left", y, distance), b.binary("shift_right_logical", y, 32 - distance)
            y = b.binary("xor", b.binary("or", left, right), x)
        x = b.add(x, keys[(block + 1) % 3])
        y = b.add(b.add(y, keys[(block + 2) % 3]), block + 1)
    return x, y


def bits(b: Builder, call: Call, shape: Sequence[int]) -> Value:
    """uint32 random bits."""
    key = call.seeds()
    words = tuple(b.reshape(b.slice(key, 0, i, i + 1), ()) for i in range(2))
    count = TensorType(tuple(shape), uint32).size
    half = (count + 1) // 2
    low = b.iota((half,), 0, uint32)
    pair = threefry(b, (words[0], words[1]), (low, b.constant(0, uint32, (half,))))
    return b.reshape(b.slice(b.concatenate(pair, 0), 0, 0, count), tuple(shape))


def uniform(b: Builder, call: Call, shape: Sequence[int], digits: int = 24) -> Value:
    """float32 in [0, 1): random bits, 24 of them unless a smaller dtype is meant, as PyTorch takes on the CPU."""
    whole = b.binary("shift_right_logical", bits(b, call, shape), 32 - digits)
    return b.multiply(b.convert(whole, float32), 2.0**-digits)


@converts("native_dropout")
def _native_dropout(b: Builder, call: Call, x: Value, probability: float, train: bool | None) -> list[Value]:
    if train is False or probability == 0:
        return [x, b.constant(True, bool_, x.type.shape)]
    kept = b.compare("GE", uniform(b, call, x.type.shape), probability)
    factor = 0.0 if probability == 1 else 1.0 / (1.0 - probability)
    scaled = b.convert(b.multiply(wide(b, x), factor), x.type.dtype)
    return [b.select(kept, scaled, 0), kept]


@converts("bernoulli.p")
def _bernoulli(b: Builder, call: Call, x: Value, probability: float, generator: object) -> Value:
    return b.convert(b.compare("LT", uniform(b, call, x.type.shape), probability), call.dtype)


@converts("bernoulli")
def _bernoulli_by_tensor(b: Builder, call: Call, x: Value, generator: object) -> Value:
    return b.convert(b.compare("LT", uniform(b, call, x.type.shape), wide(b, x)), call.dtype)


@converts("rand", "rand_like")
def _rand(b: Builder, call: Call, *arguments: object) -> Value:
    return b.convert(uniform(b, call, call.type.shape, _DIGITS.get(call.dtype, 24)), call.dtype)


@converts("randint", "randint.low")
def _randint(b: Builder, call: Call, *arguments: object) -> Value:
    """The remainder of 32 random bits, as PyTorch takes on the CPU."""
    low, high = (0, arguments[0]) if call.name == "aten.randint.default" else arguments[:2]
    if not isinstance(low, int) or not isinstance(high, int) or low < -(1 << 31) or high > 1 << 31:
        raise refused(b, call, f"whole numbers from {low} to {high}", "64-bit integers have 32 bits on the device")
    drawn = bits(b, call, call.type.shape)
    if high - low < 1 << 32:
        drawn = b.binary("remainder", drawn, high - low)
    whole = b.add(drawn, low % (1 << 32))  # which wraps as numbers of two's complement do
    if call.dtype is uint32:
        return whole
    signed = b.one("bitcast_convert", (whole,), TensorType(call.type.shape, int32))
    return b.convert(signed, call.dtype)


# ---------------------------------------------------------------------------------------------------- numbers again

STATE_BYTES = 8
"""How long a state is that `run_and_save` makes: the two words of a key. Those of PyTorch's generators are longer."""

SAVING, DRAWING = "run_and_save_rng_state", "run_with_rng_state"
"""Operators of PyTorch that checkpoints put around those that draw."""


def run_and_save(b: Builder, call: Call, nested: object, operator: Any, *arguments: Any) -> list[Any]:
    """An operator that draws, and the state that it drew from, so that a checkpoint draws the same again."""
    key = call.seeds()
    octets = b.one("bitcast_convert", (key,), TensorType((2, 4), uint8))
    return [b.reshape(octets, (STATE_BYTES,)), _drawn(b, call, key, operator, arguments)]


def run_with(b: Builder, call: Call, nested: object, state: Value, operator: Any, *arguments: Any) -> Any:
    """An operator that draws from a state that `run_and_save` made."""
    key = b.one("bitcast_convert", (b.reshape(state, (2, 4)),), TensorType((2,), uint32))
    return _drawn(b, call, key, operator, arguments)


def is_state(node: Node) -> bool:
    """Whether all that uses a tensor are operators that draw from it as a state."""
    return bool(node.users) and all(str(user.target) == DRAWING and user.args[0] is node for user in node.users)


def _drawn(b: Builder, call: Call, key: Value, operator: Any, arguments: Sequence[Any]) -> Any:
    """The results of an operator that draws with a key."""
    name, named = str(operator), call.node.kwargs if call.node is not None else {}
    converter = CONVERTERS.get(name)
    if converter is None:
        raise refused(b, call, f"{name} has no converter", "draw with torch.rand or dropout, or do not recompute it")
    left = operator._schema.arguments[len(arguments) :]
    bound = [*arguments, *(named.get(argument.name, argument.default_value) for argument in left)]
    with unset_fake_temporarily(), FakeTensorMode():
        found = operator(*map(_without_values, arguments), **named)
    fakes = found if isinstance(found, tuple | list) else (found,)
    types = tuple(tensor_type(fake, b.location) for fake in fakes)
    return converter(b, Call(name, types, frozenset(range(len(types))), lambda: key), *bound)


def _without_values(argument: Any) -> Any:
    if not isinstance(argument, Value):
        return argument
    return torch.empty(argument.type.shape, dtype=torch_dtype(argument.type.dtype))

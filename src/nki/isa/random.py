"""Random numbers, the states of their generators, and dropout."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import (
    bfloat16,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa.indirection import no_indirection
from nki.isa.shared import on_partitions_of, same_elements
from nki.spec.arrays import Arrays
from nki.spec.cost import OLDER, UNPUBLISHED, streams
from nki.spec.cost_vector import RAND2
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import ON_CHIP, SBUF, Column, Dst, Name, Src, choice, column, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa"
_INTEGERS = (uint32, uint16, uint8, int32, int16, int8)
_UNIFORM = (float32, bfloat16, float16, float8_e4m3, float8_e5m2, tfloat32, *_INTEGERS)
_GPSIMD_STATE_WORDS = 6
_VECTOR_STATE_WORDS = 24
_SINGLE = (1, 1)

_EngineChoice = Annotated[Engine, choice(Engine)]
_Limit = Annotated["float | NkiTensor", column((float32,))]


def _uniform(x: Arrays, partitions: int, count: int) -> Any:
    """float32 in [0, 1): the upper 24 of 32 random bits, which float32 holds exactly."""
    upper = x.bitwise("right_shift", x.random_bits(partitions, count), np.uint32(8))
    return x.multiply(x.to_float(upper), x.constant(2.0**-24))


@instruction(
    engines=(Engine.vector, Engine.gpsimd),
    source=_ISA,
    rules=[
        Rule(
            "gpsimd-target",
            "GpSimd makes random numbers on the target",
            lambda a, t: a.engine is not Engine.gpsimd or t.has("rng_gpsimd"),
            _ISA,
            "use nisa.engine.vector",
            lambda a, t: f"engine is {a.engine.name}, the target is {t.name}",
        ),
        no_indirection(),
    ],
    steps=streams("Rng", "dst", source="", estimate=UNPUBLISHED),
    effects=("random",),
)
def rng(
    dst: Annotated[NkiTensor, out(ON_CHIP, _INTEGERS)],
    engine: _EngineChoice = Engine.vector,
    name: Name = None,
) -> None:
    """Fill `dst` with random bits: the low bits of one 32-bit random word per element; on Vector or GpSimd.

    Every engine has its own generator with one sequence per partition, counted from the first partition of `dst`. Seed
    the one of Vector with `set_rng_seed`, both with `rand_set_state`; without a seed the sequences are those of
    NEURON_RT_STOCHASTIC_ROUNDING_SEED. They are reproducible, but not those of a device.

    Args:
        dst: int8, int16, int32, uint8, uint16 or uint32; SBUF, or PSUM on Vector.
        engine: nisa.engine.vector or nisa.engine.gpsimd.
    """


@rng.body
def _(a: Any, x: Arrays) -> None:
    bits = x.random_bits(a.dst.shape[0], a.dst.free_size)
    x.store_raw(a.dst, x.integer("add", bits, 0, a.dst.dtype))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    feature="rand2",
    rules=[
        on_partitions_of("dst", "min", "max"),
        Rule(
            "range",
            "min is less than max",
            lambda a, t: isinstance(a.min, View) or isinstance(a.max, View) or a.min < a.max,
            _ISA,
            "swap them, or use nisa.memset for a constant",
            lambda a, t: f"min is {a.min}, max is {a.max}",
        ),
        no_indirection(),
    ],
    steps=RAND2,
    effects=("random",),
)
def rand2(
    dst: Annotated[NkiTensor, out(ON_CHIP, _UNIFORM)],
    min: _Limit,
    max: _Limit,
    name: Name = None,
) -> None:
    """Fill `dst` with numbers that are uniform between `min` and `max`; on Vector.

    A number is ``min + u * (max - min)`` in float32, with u in [0, 1) from the upper 24 bits of a random word; then it
    rounds to the dtype of `dst`, which can make it `max` (never more). The difference is a
    finite float32. See `rng` about generators.

    Args:
        dst: SBUF or PSUM; float8_e4m3, float8_e5m2, float16, bfloat16, float32, tfloat32 or an integer up to 32 bits.
        min, max: numbers, or float32 tensors ``(P, 1)``; min < max.
    """


@rand2.body
def _(a: Any, x: Arrays) -> None:
    low, high = x.column(a.min), x.column(a.max)
    scaled = x.multiply(_uniform(x, a.dst.shape[0], a.dst.free_size), x.subtract(high, low))
    # u < 1 makes the product less than max - min even if that was rounded up, so the sum is at most max
    x.store(a.dst, x.add(low, scaled))


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        Rule(
            "shape",
            "src_seeds is one element: shape [1, 1]",
            lambda a, t: (a.src_seeds.shape[0], a.src_seeds.free_size) == _SINGLE,
            _ISA,
            "slice one element: seeds[0:1, 0:1]",
            lambda a, t: f"src_seeds is {list(a.src_seeds.shape)}",
        ),
        no_indirection(),
    ],
    steps=streams("SetRngSeed", "src_seeds", source="", estimate=UNPUBLISHED),
    effects=("random",),
)
def set_rng_seed(src_seeds: Annotated[NkiTensor, source(dtypes=(uint32, int32, float32))], name: Name = None) -> None:
    """Seed the generator of Vector with 32 bits; the same seed gives the same numbers from `rng` on Vector.

    The seed is expanded to all partitions, whose sequences differ. It lasts until the next seed or the end of the
    program.

    Args:
        src_seeds: SBUF or PSUM ``(1, 1)`` of a 32-bit dtype, whose bits count.
    """


@set_rng_seed.body
def _(a: Any, x: Arrays) -> None:
    x.seed_random(x.load_raw(a.src_seeds).view(np.uint32))


def _state_words(a: Any) -> int:
    return _VECTOR_STATE_WORDS if a.engine is Engine.vector else _GPSIMD_STATE_WORDS


def _state_rules(operand: str) -> list[Rule]:
    return [
        Rule(
            "vector-target",
            "the generator of Vector has a state that can be set and read on the target",
            lambda a, t: a.engine is not Engine.vector or t.has("rand_state_vector"),
            _ISA,
            "use nisa.engine.gpsimd",
            lambda a, t: f"engine is {a.engine.name}, the target is {t.name}",
        ),
        Rule(
            "words",
            f"{operand} is 2-D: {_GPSIMD_STATE_WORDS} words per partition for GpSimd, {_VECTOR_STATE_WORDS} for Vector",
            lambda a, t: getattr(a, operand).shape[1:] == (_state_words(a),),
            _ISA,
            "allocate it with this many words",
            lambda a, t: f"{operand} is {list(getattr(a, operand).shape)}, the engine needs {_state_words(a)} words",
        ),
        no_indirection(),
    ]


@instruction(
    engines=(Engine.gpsimd, Engine.vector),
    source=_ISA,
    feature="rand_state",
    rules=_state_rules("src_seeds"),
    steps=streams("RandSetState", "src_seeds", source="", estimate=UNPUBLISHED),
    effects=("random",),
)
def rand_set_state(
    src_seeds: Annotated[NkiTensor, source(SBUF, (uint32,))],
    engine: _EngineChoice = Engine.gpsimd,
    name: Name = None,
) -> None:
    """Set the states of the generator of GpSimd or Vector, one partition for each lane.

    A state is six words x, y, z, w, v, d of the XORWOW generator. A lane of GpSimd has one, a lane of Vector has four
    that take turns. What `rand_get_state` stored continues the sequence from there. A state that was set goes on in
    the programs that follow in the process, until `nki.runtime.forget_random_states`.

    Args:
        src_seeds: SBUF uint32, ``(P, 6)`` for GpSimd, ``(P, 24)`` for Vector.
        engine: nisa.engine.gpsimd, or nisa.engine.vector where it has such a generator.
    """


@rand_set_state.body
def _(a: Any, x: Arrays) -> None:
    x.seed_random(x.load_raw(a.src_seeds))


@instruction(
    engines=(Engine.gpsimd, Engine.vector),
    source=_ISA,
    feature="rand_state",
    rules=_state_rules("dst"),
    steps=streams("RandGetState", "dst", source="", estimate=UNPUBLISHED),
    effects=("random",),
)
def rand_get_state(
    dst: Annotated[NkiTensor, out(ON_CHIP, (uint32,))],
    engine: _EngineChoice = Engine.gpsimd,
    name: Name = None,
) -> None:
    """Store the states of the generator of GpSimd or Vector, one partition for each lane; see `rand_set_state`.

    Args:
        dst: uint32, ``(P, 6)`` for GpSimd in SBUF, ``(P, 24)`` for Vector in SBUF or PSUM.
        engine: nisa.engine.gpsimd, or nisa.engine.vector where it has such a generator.
    """


@rand_get_state.body
def _(a: Any, x: Arrays) -> None:
    x.store_raw(a.dst, x.random_state(a.dst.shape[0], a.dst.free_size))


def _probability_dtype(a: Any, t: Target) -> bool:
    if not isinstance(a.prob, View):
        return True
    return a.prob.dtype.is_float if a.data.dtype.is_float else a.prob.dtype == float32


@instruction(
    engines=(Engine.vector,),
    source=_ISA,
    rules=[
        same_elements("dst", "data"),
        Rule(
            "dtypes",
            "dst and data have the same dtype",
            lambda a, t: a.dst.dtype == a.data.dtype,
            _ISA,
            "cast with nisa.tensor_copy first",
            lambda a, t: f"dst is {a.dst.dtype}, data is {a.data.dtype}",
        ),
        on_partitions_of("data", "prob"),
        Rule(
            "prob-dtype",
            "prob is float32, or any float if data is a float",
            _probability_dtype,
            _ISA,
            "cast prob to float32",
            lambda a, t: f"prob is {a.prob.dtype}, data is {a.data.dtype}",
        ),
        Rule(
            "prob-range",
            "prob is a probability between 0 and 1",
            lambda a, t: isinstance(a.prob, View) or 0 <= a.prob <= 1,
            _ISA,
            "pass the probability of dropping an element",
            lambda a, t: f"prob is {a.prob}",
            severity="warning",
        ),
        no_indirection(),
    ],
    steps=streams("Dropout", "data", "dst", source="", estimate=OLDER),
    effects=("random",),
)
def dropout(dst: Dst, data: Src, prob: Column, name: Name = None) -> None:
    """Replace elements of `data` by zero with probability `prob`; on Vector.

    `prob` is the probability of *dropping*: 0.0 keeps everything, 1.0 drops everything. Elements that are kept keep
    their bits; nothing is scaled by ``1 / (1 - prob)``. An element is dropped if its random number in [0, 1), made as
    in `rand2`, is less than `prob`.

    Args:
        dst, data: SBUF or PSUM, the same dtype, partitions and elements per partition.
        prob: a number, or a tensor ``(P, 1)``: float32, or any float if data is a float.
    """


@dropout.body
def _(a: Any, x: Arrays) -> None:
    values, threshold = x.load_raw(a.data), x.column(a.prob)
    dropped = x.compare("less", _uniform(x, a.data.shape[0], a.data.free_size), threshold)
    x.store_raw(a.dst, x.where(dropped, x.rounded(0.0, a.dst.dtype), values))

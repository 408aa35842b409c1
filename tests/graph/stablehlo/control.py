"""Cases of control flow, order, random numbers, calls and normalizations; and of what no device has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.graph.stablehlo.draw import (
    ALL,
    BOOL,
    F32,
    FLOATS,
    INTEGERS,
    Array,
    Case,
    Draw,
    lowered,
    mlir_type,
    type_of,
    written,
)
from tests.graph.stablehlo.pointwise import Generator

_WORD = np.dtype("int32")


def _while(draw: Draw) -> Case:
    x, trips = draw.array(draw.shape(1, 2), draw.one(F32, _WORD), False, top=9), np.asarray(draw.below(6), np.int32)
    form = draw.one("counted", "data", "swapped", "nested", "indexed")
    y = draw.array(x.shape, x.dtype, False, top=9)
    functions: Mapping[str, Any] = {
        "counted": lambda a, b, n: lax.fori_loop(0, n, lambda i, c: c + b * i.astype(c.dtype), a),
        "data": lambda a, b, n: lax.while_loop(
            lambda c: (c[1] < n) & (c[2] < 4), lambda c: (c[0] + b, c[1] + 1, c[2] + 2), (a, 0, 0)
        ),
        "swapped": lambda a, b, n: lax.fori_loop(0, n, lambda i, c: (c[1], c[0] + 1), (a, b)),
        "nested": lambda a, b, n: lax.fori_loop(
            0, n, lambda i, c: lax.fori_loop(0, i, lambda j, d: jnp.maximum(d + 1, b), c), a
        ),
        "indexed": lambda a, b, n: lax.fori_loop(0, n, lambda i, c: c.at[i % c.shape[0]].set(b[0]), a),
    }
    return lowered(functions[form], x, y, trips, scaled=1e-6, note=f"{form} {type_of(x)}, {int(trips)} trips")


def _if(draw: Draw) -> Case:
    x, test = draw.array(draw.shape(1, 2), F32, False), np.asarray(draw.chance(0.5))
    form = draw.one("values", "pass", "nested")
    functions: Mapping[str, Any] = {
        "values": lambda a, p: lax.cond(p, lambda b: (b + 1, b), lambda b: (b * 2, -b), a),
        "pass": lambda a, p: lax.cond(p, lambda b: b, lambda b: b * 3, a),
        "nested": lambda a, p: lax.cond(p, lambda b: lax.cond(b.sum() > 0, jnp.abs, jnp.negative, b), lambda b: b, a),
    }
    return lowered(functions[form], x, test, scaled=1e-6, note=f"{form} {type_of(x)} {bool(test)}")


def _case(draw: Draw) -> Case:
    """The index outside of the branches chooses the last one."""
    x, index = draw.array(draw.shape(1, 2), F32, False), np.asarray(draw.below(6, -2), np.int32)
    kind, count = type_of(x), draw.one(1, 2, 4)
    names = ("add", "multiply", "subtract", "maximum")[:count]
    branches = ", ".join(
        f"{{ %b{n} = stablehlo.{name} %a1, %a1 : {kind} stablehlo.return %b{n} : {kind} }}"
        for n, name in enumerate(names)
    )
    line = f'%r0 = "stablehlo.case"(%a0) ({branches}) : (tensor<i32>) -> {kind}'
    return written(line, [kind], index, x, note=f"{kind}, {int(index)} of {count}")


def _call(draw: Draw) -> Case:
    x = draw.array(draw.shape(), F32, False)
    inner = jax.jit(lambda a: jnp.maximum(a, 1) * 2)
    return lowered(lambda a: inner(inner(a)), x, scaled=1e-6, note=type_of(x))


def _composite(draw: Draw) -> Case:
    x = draw.array(draw.shape(), F32, False)
    made = lax.composite(lambda a: a * 2 + 1, name="my.affine")
    return lowered(made, x, ulps=1, note=type_of(x))


# -------------------------------------------------------------------------------------------------------------- order


def _sort(draw: Draw) -> Case:
    shape, dtype = draw.shape(1, 3), draw.one(*FLOATS, *INTEGERS)
    dim = draw.below(len(shape))
    x = draw.array(
        shape, dtype, None if draw.chance(0.5) else False, top=draw.one(0, 0, 5) if dtype.kind in "iu" else 0
    )
    form = draw.one("plain", "pair", "keys", "down")
    note = f"{form} {type_of(x)} dim {dim}"
    if form == "plain":
        return lowered(lambda a: lax.sort(a, dimension=dim), x, note=note)
    y = draw.array(shape, draw.one(F32, _WORD, BOOL, np.dtype("uint8")), False)
    if form == "pair":
        return lowered(lambda a, b: lax.sort((a, b), dimension=dim, num_keys=1, is_stable=True), x, y, note=note)
    z = draw.array(shape, _WORD, False, top=3)
    if form == "keys":
        return lowered(lambda a, b, c: lax.sort((c, a, b), dimension=dim, num_keys=2), x, y, z, note=note)
    return _sort_down(shape, dim, dtype, draw)


def _sort_down(shape: tuple[int, ...], dim: int, dtype: np.dtype[Any], draw: Draw) -> Case:
    x = draw.array(shape, dtype, False)
    order = draw.array(shape, _WORD, False, top=99)
    scalar = mlir_type((), dtype)
    kinds = f"{type_of(x)}, {type_of(order)}"
    lines = f"""%r0, %r1 = "stablehlo.sort"(%a0, %a1) ({{
    ^bb0(%p: {scalar}, %q: {scalar}, %s: tensor<i32>, %t: tensor<i32>):
      %c = stablehlo.compare GT, %p, %q : ({scalar}, {scalar}) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }}) {{dimension = {dim} : i64, is_stable = true}} : ({kinds}) -> ({kinds})"""
    return written(lines, [type_of(x), type_of(order)], x, order, note=f"down {type_of(x)} dim {dim}")


def _argsort(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 2), draw.one(F32, _WORD), False)
    down = draw.chance(0.5)
    return lowered(lambda a: jnp.argsort(a, descending=down), x, note=type_of(x))


def _top_k(draw: Draw) -> Case:
    x = draw.array(draw.shape(1, 3), draw.one(*FLOATS, *INTEGERS))
    if draw.chance(0.4) and x.dtype == F32:
        x = np.round(draw.unit(x.shape, F32, -3, 3))
    if x.dtype.kind not in "iu":  # JAX's own order of NaN and of zeros is not said
        x = np.where(np.isnan(x.astype(np.float64)) | (x == 0), x.dtype.type(1), x)
    k = draw.below(x.shape[-1] + 1, 1)
    return lowered(lambda a: lax.top_k(a, k), x, note=f"{type_of(x)} k {k}")


# ------------------------------------------------------------------------------------------------------ random numbers


def _rng_bit_generator(draw: Draw) -> Case:
    algorithm = draw.one("THREE_FRY", "PHILOX")
    words = 2 if algorithm == "THREE_FRY" else draw.one(2, 3)
    state = draw.random.integers(0, 2**63, words, dtype=np.uint64).view(np.uint32)
    shape, dtype = draw.shape(1, 3), draw.one("uint32", "uint32", "uint8", "uint16")
    chosen = lax.RandomAlgorithm.RNG_THREE_FRY if algorithm == "THREE_FRY" else lax.RandomAlgorithm.RNG_PHILOX

    def bits(key: Any) -> Any:
        return lax.rng_bit_generator(key, shape, dtype=np.dtype(dtype), algorithm=chosen)

    if algorithm == "PHILOX" and words == 3:
        state = state[:4]
    return lowered(bits, state[:4], note=f"{algorithm} {shape} {dtype}")


def _random(draw: Draw) -> Case:
    shape, seed = draw.shape(0, 2), draw.random.integers(0, 2**31, 2).astype(np.uint32)
    form = draw.one("uniform", "normal", "bits", "randint", "bernoulli", "permutation")
    functions: Mapping[str, Any] = {
        "uniform": lambda k: jax.random.uniform(k, shape),
        "normal": lambda k: jax.random.normal(k, shape),
        "bits": lambda k: jax.random.bits(k, shape),
        "randint": lambda k: jax.random.randint(k, shape, 0, 10),
        "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, shape),
        "permutation": lambda k: jax.random.permutation(k, 12),
    }
    return lowered(
        lambda key: functions[form](jax.random.wrap_key_data(key)), seed, scaled=2e-6, note=f"{form} {shape}"
    )


def _rng(draw: Draw) -> Case:
    shape = draw.one((300,), (20, 33), (7, 5, 9))
    form = draw.one("UNIFORM", "NORMAL")
    a, b = np.float32(draw.one(-2.0, 0.0)), np.float32(draw.one(1.0, 3.0))
    result = mlir_type(shape, F32)
    sizes = f"%s = stablehlo.constant dense<[{', '.join(map(str, shape))}]> : tensor<{len(shape)}xi64>"
    types = f"(tensor<f32>, tensor<f32>, tensor<{len(shape)}xi64>) -> {result}"
    line = f"{sizes}\n%r0 = stablehlo.rng %a0, %a1, %s, distribution = {form} : {types}"

    def judge(inputs: Sequence[Array], found: Sequence[Array]) -> str:
        low, high = (float(x) for x in inputs) if inputs else (float(a), float(b))
        x = found[0].astype(np.float64)
        mean, spread = ((low + high) / 2, (high - low) / 12**0.5) if form == "UNIFORM" else (low, high)
        off = abs(x.mean() - mean) / (spread / x.size**0.5), abs(x.std() / spread - 1) * x.size**0.5
        outside = form == "UNIFORM" and (x.min() < low or x.max() >= high)
        repeated = len(np.unique(x)) < 0.99 * x.size
        return f"mean {x.mean()}, deviation {x.std()}" if max(off) > 5 or outside or repeated else ""

    return written(line, [result], np.asarray(a), np.asarray(b), judge=judge, note=f"{form} {result}")


# ------------------------------------------------------------------------------------------------ batch normalization


def _batch_norm(form: str) -> Generator:
    def make(draw: Draw) -> Case:
        dtype, shape = draw.one(*FLOATS), draw.one((4, 3), (2, 5, 3), (2, 3, 4, 5), (3, 2, 2, 8))
        dim = draw.below(len(shape))
        x, kind = draw.array(shape, dtype, False), mlir_type(shape, dtype)
        scale, offset, mean = (draw.array((shape[dim],), dtype, False) for _ in range(3))
        variance = draw.unit((shape[dim],), dtype, 0.5, 2.0)
        vector = type_of(scale)
        common = f"{{epsilon = 1.0e-3 : f32, feature_index = {dim} : i64}}"
        scaled = 1e-5 if dtype == F32 else 2.0**-5
        if form == "inference":
            inputs = [x, scale, offset, mean, variance]
            results = [kind]
        elif form == "training":
            inputs, results = [x, scale, offset], [kind, vector, vector]
        else:
            inputs, results = [x, scale, mean, variance, draw.array(shape, dtype, False)], [kind, vector, vector]
        names = ", ".join(f"%a{n}" for n in range(len(inputs)))
        made = ", ".join(f"%r{n}" for n in range(len(results)))
        types = f"({', '.join(map(type_of, inputs))}) -> ({', '.join(results)})"
        line = f'{made} = "stablehlo.batch_norm_{form}"({names}) {common} : {types}'
        return written(line, results, *inputs, scaled=scaled, note=f"{kind} dim {dim}")

    return make


# ------------------------------------------------------------------------------------------------- what no device has


def _fft(draw: Draw) -> Case:
    return lowered(lambda a: jnp.abs(jnp.fft.rfft(a)), draw.array((3, 8), F32, False), scaled=1e-6)


def _complex(draw: Draw) -> Case:
    x = draw.array((3, 4), F32, False)
    return lowered(lambda a: lax.real(lax.complex(a, a) * lax.complex(a, a)), x, scaled=1e-6)


def _cholesky(draw: Draw) -> Case:
    x = np.eye(4, dtype=np.float32) * 3
    kind = type_of(x)
    return written(f"%r0 = stablehlo.cholesky %a0, lower = true : {kind}", [kind], x, scaled=1e-6)


def _triangular_solve(draw: Draw) -> Case:
    a, b = np.eye(4, dtype=np.float32) * 2, draw.array((4, 3), F32, False)
    line = f"""%r0 = "stablehlo.triangular_solve"(%a0, %a1) {{left_side = true, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>}} : ({type_of(a)}, {type_of(b)}) -> {type_of(b)}"""
    return written(line, [type_of(b)], a, b, scaled=1e-6)


def _custom_call(draw: Draw) -> Case:
    """A target that nobody knows is refused."""
    x = draw.array((3, 4), draw.one(*ALL), False)
    kind = type_of(x)
    return written(f"%r0 = stablehlo.custom_call @nobody(%a0) : ({kind}) -> {kind}", [kind], x, note=kind)


CONTROL: Mapping[str, Generator] = {
    "while": _while,
    "if": _if,
    "case": _case,
    "func.call": _call,
    "composite": _composite,
    "sort": _sort,
    "sort, argsort": _argsort,
    "chlo.top_k": _top_k,
    "rng_bit_generator": _rng_bit_generator,
    "rng": _rng,
    "jax.random": _random,
    "batch_norm_inference": _batch_norm("inference"),
    "batch_norm_training": _batch_norm("training"),
    "batch_norm_grad": _batch_norm("grad"),
    "custom_call": _custom_call,
    "complex, real, imag": _complex,
    "fft": _fft,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
}
"""By the name of the operation."""

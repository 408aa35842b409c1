"""Keys of `jax.random.key` and complex numbers: programs of the device have the numbers behind them."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax


def is_key(value: Any) -> bool:
    """Whether an array, or a `jax.ShapeDtypeStruct`, is one of keys."""
    return hasattr(value, "dtype") and bool(jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key))


def raw(value: Any) -> Any:
    """The numbers behind keys; anything else as it is."""
    return jax.random.key_data(value) if is_key(value) else value


def in_pairs(value: Any) -> Any:
    """Complex numbers as real and imaginary parts in a last dimension; anything else as it is."""
    if not jax.numpy.issubdtype(jax.numpy.result_type(value), jax.numpy.complexfloating):
        return value
    whole = jax.numpy.asarray(value)
    return jax.numpy.stack([whole.real, whole.imag], -1)


def typed(array: Any, wanted: Any) -> Any:
    """An array in the dtype of `wanted`, the keys that its numbers are, or complex numbers of their parts."""
    if is_key(wanted):
        return jax.random.wrap_key_data(array, impl=_generator(wanted.dtype))
    if jax.numpy.issubdtype(wanted.dtype, jax.numpy.complexfloating):
        array = jax.lax.complex(array[..., 0], array[..., 1])
    return array if array.dtype == wanted.dtype else array.astype(wanted.dtype)


@cache  # one for each kind of key, of which JAX has a handful
def _generator(dtype: Any) -> Any:
    """The generator of keys of a dtype, which JAX tells of arrays only, also of those that it traces."""
    found: list[Any] = []

    def looked_at(key: Any) -> Any:
        found.append(jax.random.key_impl(key))
        return key

    jax.eval_shape(looked_at, jax.ShapeDtypeStruct((), dtype))
    return found[0]

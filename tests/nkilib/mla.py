"""What tests of latent attention share: packed weights, and the same call from two frameworks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from ml_dtypes import bfloat16, float8_e4m3fn

RNG = np.random.default_rng(35)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(bfloat16)


def packed(depth: int, columns: int) -> tuple[Any, Any]:
    """Weights (depth / 4, columns), four in a word, and their scales, a byte for 128 x 128."""
    data = RNG.standard_normal((depth // 4, columns, 4)).astype(float8_e4m3fn)
    scales = RNG.integers(120, 125, (depth // 128, -(-columns // 128))).astype(np.uint8)
    return data.view(np.uint32)[..., 0], scales


def of_torch(value: Any) -> Any:
    """An array as a tensor."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == bfloat16:
        return torch.from_numpy(value.astype(np.float32)).bfloat16()
    if value.dtype == float8_e4m3fn:
        return torch.from_numpy(value.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(value)


def same_in_frameworks(kernel: Any, arguments: dict[str, Any]) -> None:
    """The same bytes come from NumPy, from torch, and from JAX under jit."""
    wanted = _all(kernel(**arguments))
    made = _all(kernel(**{name: of_torch(value) for name, value in arguments.items()}))
    arrays = {name: jnp.asarray(value) for name, value in arguments.items() if isinstance(value, np.ndarray)}
    options = {name: value for name, value in arguments.items() if name not in arrays}
    traced = _all(jax.jit(lambda each: kernel(**each, **options))(arrays))
    for numpy, tensor, array in zip(wanted, made, traced, strict=True):
        assert np.array_equal(tensor.float().numpy(), np.asarray(numpy).astype(np.float32))
        assert np.array_equal(np.asarray(array).astype(np.float32), np.asarray(numpy).astype(np.float32))


def _all(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def close(made: Any, wanted: Any, tolerance: float) -> None:
    """The largest difference as a part of the root mean square."""
    for some, exact in zip(_all(made), _all(wanted), strict=True):
        assert some.shape == exact.shape
        error = np.abs(np.asarray(some).astype(np.float64) - exact).max()
        assert error <= tolerance * np.sqrt((exact**2).mean())


def close_in_mean(made: Any, wanted: Any, tolerance: float) -> None:
    """The root mean square of differences as a part of the numbers'; none is larger than a quarter of it.

    For what is quantized on the way: a number at a tie that is rounded the other way moves all that it is multiplied
    into by an eighth of itself, which is seldom, and no error.
    """
    for some, exact in zip(_all(made), _all(wanted), strict=True):
        assert some.shape == exact.shape
        error, size = np.asarray(some).astype(np.float64) - exact, np.sqrt((exact**2).mean())
        assert np.abs(error).max() <= 0.25 * size
        assert np.sqrt((error**2).mean()) <= tolerance * size

"""Steps of optimizers, elementwise operations and norms of tensors of any size, against float64 and PyTorch."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16

import nki
from nkilib.catalogue import kernel, reference
from nkilib.errors import KernelLimit
from nkilib.experimental.foreach import add_tensor_kernel, l2_norm_kernel, mul_scalar_kernel
from nkilib.experimental.optimizer import adam_kernel, adamw_kernel

NAMES = {
    **{f"{op}_scalar_kernel": (1, 1) for op in ("add", "sub", "mul", "div")},
    **{"add_tensor_kernel": (2, 1), "sub_tensor_kernel": (2, 1), "mul_tensor_kernel": (2, 0)},
    **{"div_tensor_kernel": (2, 0), "addcdiv_kernel": (3, 1), "addcmul_kernel": (3, 1), "lerp_kernel": (2, 1)},
    **{"sqrt_kernel": (1, 0), "l1_norm_kernel": (1, 0), "l2_norm_kernel": (1, 0), "linf_norm_kernel": (1, 0)},
}
"""Of each kernel how many tensors it has, and how many scalars behind them."""


def number(value: float) -> Any:
    return np.full((128, 1), value, np.float32)


def tensors(count: int, shape: tuple[int, ...], dtype: Any = np.float32) -> list[Any]:
    """Positive, and away from 0, because some of them divide."""
    rng = np.random.default_rng(sum(shape))
    return [(0.5 + rng.random(shape)).astype(dtype) for _ in range(count)]


def close(made: Any, wanted: Any) -> None:
    """Within two roundings; bfloat16 next to a tie may go either way."""
    for a, b in zip(*((each if isinstance(each, tuple) else (each,)) for each in (made, wanted)), strict=True):
        unit = 2.0**-8 if b.dtype == bfloat16 else 2.0**-21
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.abs(a.astype(np.float64) - b.astype(np.float64)).max() <= unit * np.abs(b.astype(np.float64)).max()


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_operation(name: str) -> None:
    count, scalars = NAMES[name]
    given = [*tensors(count, (3, 43, 5)), *[number(0.3)] * scalars, 3 * 43 * 5]
    given[0] = -given[0] if "norm" in name else given[0]
    close(nki.simulate(kernel(name))[2](*given), reference(name)(*given))


@settings(max_examples=6, deadline=None)
@given(some.sampled_from(sorted(NAMES)), some.integers(1, 3000), some.booleans(), some.sampled_from([1, 2]))
def test_any_number_of_elements(name: str, numel: int, short: bool, cores: int) -> None:
    count, scalars = NAMES[name]
    given = [*tensors(count, (numel,), bfloat16 if short else np.float32), *[number(0.3)] * scalars, numel]
    close(nki.simulate(kernel(name))[cores](*given), reference(name)(*given))


@settings(max_examples=4, deadline=None)
@given(some.integers(1, 3000), some.booleans(), some.booleans(), some.booleans())
def test_steps_of_any_number_of_parameters(numel: int, decoupled: bool, amsgrad: bool, short: bool) -> None:
    name = "adamw_kernel" if decoupled else "adam_kernel"
    given = tensors(5, (numel,), bfloat16 if short else np.float32)
    rest = (number(0.01), number(1.3), number(0.99), numel, 0.9, 0.999, 1e-8, amsgrad)
    if not amsgrad:
        given[4] = None
    close(nki.simulate(kernel(name))[2](*given, *rest), reference(name)(*given, *rest))


@pytest.mark.parametrize("decoupled", [False, True])
def test_steps_are_those_of_torch(decoupled: bool) -> None:
    rate, decay, betas, eps = 0.01, 0.1, (0.9, 0.999), 1e-8
    param, grads = torch.randn(30), [torch.randn(30) for _ in range(3)]
    theirs = param.clone().requires_grad_()
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind([theirs], lr=rate, betas=betas, eps=eps, weight_decay=decay)
    first, second = torch.zeros(30), torch.zeros(30)
    for step, grad in enumerate(grads, 1):
        theirs.grad = grad.clone()
        optimizer.step()
        scalars = (
            rate / (1 - betas[0] ** step),
            (1 - betas[1] ** step) ** -0.5,
            1 - rate * decay if decoupled else decay,
        )
        ours = adamw_kernel if decoupled else adam_kernel
        numbers = [torch.from_numpy(number(each)) for each in scalars]
        param, first, second = ours(param, grad, first, second, None, *numbers, 30, *betas, eps)
    torch.testing.assert_close(param, theirs.detach(), rtol=1e-4, atol=1e-6)


def test_jax() -> None:
    a, b = tensors(2, (50,))
    made = add_tensor_kernel(jnp.asarray(a), jnp.asarray(b), jnp.asarray(number(2.0)), 50)
    assert np.allclose(made, a + 2 * b) and np.allclose(l2_norm_kernel(jnp.asarray(a), 50), np.linalg.norm(a))


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.shape", "the number of elements of data is 9", {"numel": 8}),
        ("nkilib.shape", "numel is 0", {"numel": 0}),
        ("nkilib.shape", "dimension 0 of scalar_tensor is 1, not 128", {"scalar_tensor": number(1.0)[:1]}),
        ("nkilib.dtype", "data is int32", {"data": np.ones(9, np.int32)}),
    ],
)
def test_what_is_refused(code: str, words: str, change: dict[str, Any]) -> None:
    with pytest.raises(KernelLimit) as caught:
        mul_scalar_kernel(**({"data": np.ones(9, np.float32), "scalar_tensor": number(1.0), "numel": 9} | change))
    assert caught.value.code == code and words in caught.value.message


@pytest.mark.parametrize(
    ("code", "words", "change"),
    [
        ("nkilib.dtype", "grad_ptr is bfloat16", {"grad_ptr": np.ones(9, bfloat16)}),
        ("nkilib.argument", "beta2 is 1.0", {"beta2": 1.0}),
        ("nkilib.argument", "eps is -1", {"eps": -1.0}),
        ("nkilib.shape", "the number of elements of exp_avg_ptr is 8", {"exp_avg_ptr": np.ones(8, np.float32)}),
    ],
)
def test_what_a_step_refuses(code: str, words: str, change: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        **dict(zip(("param_ptr", "grad_ptr", "exp_avg_ptr", "exp_avg_sq_ptr"), tensors(4, (9,)), strict=True)),
        **{"max_exp_avg_sq_ptr": None, "step_size_ptr": number(0.1), "inv_bc2_sqrt_ptr": number(1.0)},
        **{"wd_factor_ptr": number(1.0), "numel": 9, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
    }
    with pytest.raises(KernelLimit) as caught:
        adamw_kernel(**(given | change))
    assert caught.value.code == code and words in caught.value.message

"""Limits: the code, the numbers and the user's line of what a kernel refuses."""

from collections.abc import Callable

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.source import text_of
from nkilib import errors, limits
from nkilib.kernels import linear_scan


def refused(check: Callable[..., None], **given: np.ndarray) -> errors.KernelLimit:
    @nki.jit
    def kernel(**tensors):
        check(**tensors)
        return next(iter(tensors.values()))

    with pytest.raises(errors.KernelLimit) as caught:
        nki.simulate(kernel)(**given)
    return caught.value


A, B = np.zeros((4, 8), np.float32), np.zeros((7, 3), np.float32)

CASES: list[tuple[str, str, Callable[..., object]]] = [
    ("nkilib.shape", "a has 2 dimensions, [4, 8], not 3", lambda a: limits.shape("a", a, (1, 4, 8))),
    ("nkilib.shape", "dimension 1 of a is 8, not 9", lambda a: limits.shape("a", a, ("M", 9))),
    ("nkilib.shape", "d is 8", lambda a: limits.between("d", a.shape[1], 1, 4)),
    ("nkilib.shape", "rows is 4, 1 more than a multiple of 3", lambda a: limits.multiple("rows", a.shape[0], 3)),
    ("nkilib.dtype", "a is float32", lambda a: limits.dtype("a", a, (nl.bfloat16,))),
    ("nkilib.option", "mode is 'x'", lambda a: limits.one_of("mode", "x", ("y", "z"))),
    ("nkilib.argument", "bias is None", lambda a: limits.need(False, "bias", None, "bias is given", "pass bias")),
    ("nkilib.layout", "k is [4, 8]", lambda a: limits.layout(False, "k", list(a.shape), "k is (d, s)", "transpose k")),
    ("nkilib.not-built", "does not have sink yet", lambda a: limits.not_built({"sink": 1}, "attention")),
    ("nkilib.target", "the target has NeuronCore-v", lambda a: limits.generation("attention", 9, "no reason")),
]


@pytest.mark.parametrize(("code", "words", "check"), CASES, ids=[words for _, words, _ in CASES])
def test_what_is_refused(code: str, words: str, check: Callable[..., None]) -> None:
    error = refused(check, a=A)
    assert error.code == code and words in error.message and error.rule and error.fix


def test_a_name_stands_for_one_number() -> None:
    def check(a, b):
        limits.shape("b", b, ("K", "N"), limits.shape("a", a, ("M", "K")))

    error = refused(check, a=A, b=B)
    assert "dimension 0 of b is 7, not K=8" in error.message


def test_dtypes_that_differ_are_all_named() -> None:
    error = refused(lambda a, b: limits.same_dtype(a=a, b=b, c=None), a=A, b=B.astype(np.int32))
    assert "a is float32, b is int32" in error.message


def test_what_holds_is_let_through() -> None:
    @nki.jit
    def kernel(a):
        assert limits.shape("a", a, ("M", 8)) == {"M": 4}
        limits.between("M", 4, 1, 4)
        limits.multiple("M", 4, 2)
        limits.dtype("a", a, (nl.float32,))
        limits.same_dtype(a=a, b=None)
        limits.one_of("mode", "y", ("y",))
        limits.need(True, "a", 1, "", "")
        limits.layout(True, "a", 1, "", "")
        limits.not_built({"sink": None}, "attention")
        limits.generation("attention", 2, "")
        return a

    nki.simulate(kernel)(A)


def test_arguments_without_effect_are_told() -> None:
    @nki.jit
    def kernel(a):
        limits.without_effect("mlp", "without quantization", scale=a, bias=None, other=1)
        return a

    with pytest.warns(errors.WithoutEffect, match="mlp: scale, other have no effect without quantization"):
        nki.simulate(kernel)(A)


def test_the_line_is_that_of_the_call_of_a_launch_on_two_cores() -> None:
    """Cores run in threads, on whose stacks the caller is not."""
    with pytest.raises(errors.KernelLimit) as caught:
        linear_scan[2](A, B)
    assert text_of(caught.value.location.frame).startswith("linear_scan[2](A, B)")
    with pytest.raises(errors.KernelLimit) as caught:
        nki.simulate(linear_scan)[2](A, B)
    assert text_of(caught.value.location.frame).startswith("nki.simulate(linear_scan)[2](A, B)")


def test_the_line_is_that_of_the_call_into_the_library() -> None:
    error = refused(lambda a: limits.between("size", 9, 1, 4), a=A)
    assert text_of(error.location.frame).startswith("limits.between(")

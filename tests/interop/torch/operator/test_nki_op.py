"""Operators made with `nki_op`: what eager calls give, what is declared and checked, and what is refused."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import nki
from nki.core.errors import NkiError
from nki.interop.torch import nki_op, wrap_nki
from nki.report import NkiWarning
from tests.interop.torch.kernels import (
    assign,
    both_scaled,
    differentiable,
    duplicate,
    fill_from,
    matrix,
    multiply,
    product,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_operator_gives_what_torch_gives(dtype: torch.dtype) -> None:
    a, b = matrix(dtype=dtype), matrix(seed=1, dtype=dtype)
    assert torch.equal(multiply(a, b), a * b)
    assert torch.equal(duplicate(a), a)
    assert torch.equal(torch.ops.nki_tests.multiply(a, b), a * b)


def test_arguments_need_not_be_contiguous() -> None:
    a = matrix(128)
    target = torch.zeros(128, 128).t()
    assign(target, a)
    assert torch.equal(target, a)
    assert torch.equal(multiply(a.t(), a), a.t() * a)


@pytest.mark.parametrize(("operator", "gradient"), [(multiply, False), (differentiable, False), (differentiable, True)])
def test_opcheck(operator: object, gradient: bool) -> None:
    a, b = matrix().requires_grad_(gradient), matrix(seed=1).requires_grad_(gradient)
    torch.library.opcheck(operator, (a, b))


def test_opcheck_of_an_operator_that_writes() -> None:
    torch.library.opcheck(assign, (torch.zeros(128, 32), matrix()))
    torch.library.opcheck(duplicate, (matrix(),))


def test_a_write_is_counted() -> None:
    target = torch.zeros(128, 32)
    before = target._version
    assign(target, matrix())
    assert target._version > before


def test_shapes_are_found_without_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_compiled(*_: object) -> None:
        raise AssertionError("the kernel ran")

    monkeypatch.setattr("nki.driver.call.run_compiled", run_compiled)
    with FakeTensorMode():
        a = torch.empty(128, 24, dtype=torch.bfloat16)
        found = multiply(a, a)
        assert (found.shape, found.dtype) == (a.shape, a.dtype)
        result = wrap_nki(both_scaled)(a, 2.0, dtype=nki.language.float32)
        assert result["scaled"].dtype == torch.float32
        assert result["rest"][0].shape == (128, 24)
        assert result["rest"][1] is None
    meta = torch.empty(128, 24, device="meta")
    assert multiply(meta, meta).is_meta
    assert product(meta, meta).shape == (128, 24)
    with pytest.raises(AssertionError, match="the kernel ran"):
        multiply(matrix(), matrix())


def refused(call: object, *args: object) -> NkiError:
    with pytest.raises(NkiError) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value


def test_a_write_that_is_not_declared_is_refused_before_it_happens() -> None:
    @nki_op("nki_tests::undeclared", mutates_args=())
    def undeclared(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        fill_from(target.view(128, 32), source)
        return source.clone()

    target = torch.zeros(128, 32)
    error = refused(undeclared, target, matrix())
    assert error.code == "torch.undeclared-write"
    assert "argument target" in error.message
    assert error.location.frame is not None
    assert error.location.frame.file == __file__
    assert not target.any()
    with FakeTensorMode():
        fake = torch.empty(128, 32)
        assert refused(undeclared, fake, torch.empty(128, 32)).code == "torch.undeclared-write"


def test_a_write_by_torch_that_is_not_declared_is_refused() -> None:
    @nki_op("nki_tests::undeclared_by_torch", mutates_args=())
    def undeclared(target: torch.Tensor) -> torch.Tensor:
        target[0].zero_()
        return target.clone()

    assert refused(undeclared, matrix()).code == "torch.undeclared-write"


def test_two_arguments_may_share_a_storage() -> None:
    both = torch.cat([torch.zeros(128, 8), matrix(8)], 1)
    assign(both[:, :8], both[:, 8:])
    assert torch.equal(both[:, :8], both[:, 8:])


def test_a_declared_write_that_does_not_happen_is_told_once() -> None:
    @nki_op("nki_tests::unwritten", mutates_args={"a", "b"})
    def unwritten(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        b.add_(1)
        return product(a, b)

    with pytest.warns(NkiWarning, match=r"torch\.unwritten-argument.* writes to a, but does not"):
        unwritten(matrix(), matrix())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unwritten(matrix(), matrix())


def test_a_lost_gradient_is_refused_at_the_call() -> None:
    a, b = matrix().requires_grad_(), matrix()
    error = refused(multiply, a, b)
    assert error.code == "torch.no-backward"
    assert error.location.frame is not None
    assert error.location.frame.file == __file__
    with torch.no_grad():
        assert torch.equal(multiply(a, b), a * b)
    with torch.inference_mode():
        assert torch.equal(multiply(a, b), a * b)
        target = torch.zeros(128, 32)
        assign(target, b)
        assert torch.equal(target, b)
    assert refused(product, a, b).code == "argument.requires-grad"
    assert refused(wrap_nki(product), a, b).code == "argument.requires-grad"


def test_names_and_hints() -> None:
    def body(a: torch.Tensor) -> torch.Tensor:
        return a.clone()

    assert refused(nki_op, "no_namespace", body).code == "torch.operator-name"
    assert refused(nki_op, "nki_tests::hints", lambda a: a).code == "torch.operator-schema"
    error = refused(lambda: nki_op("nki_tests::unknown", body, mutates_args={"z"}))
    assert error.code == "torch.operator-schema"
    assert refused(wrap_nki, 3).code == "jit.function"
    assert refused(lambda: wrap_nki(product)[0]).code == "launch.grid"


def test_bodies_with_other_arguments() -> None:
    @nki_op("nki_tests::many", mutates_args=())
    def many(
        items: list[torch.Tensor], scale: float, extra: torch.Tensor | None = None, *, always: bool = False
    ) -> list[torch.Tensor]:
        """Its manual."""
        results = [both_scaled(item, scale)["scaled"] for item in items]
        return results if extra is None or not always else [*results, product(extra, extra)]

    a, b = matrix(), matrix(seed=1)
    assert torch.equal(many([a, b], 2.0)[1], b * 2)
    assert torch.equal(many([a], 0.5, b, always=True)[1], b * b)
    torch.library.opcheck(many, ([a, b], 2.0))


def test_a_kernel_may_be_the_body() -> None:
    @nki.jit
    def copied(a: torch.Tensor) -> torch.Tensor:
        out = nki.language.ndarray(a.shape, dtype=a.dtype, buffer=nki.language.shared_hbm)
        nki.isa.dma_copy(dst=out, src=a)
        return out

    operator = nki_op("nki_tests::copied", copied)
    assert torch.equal(operator(matrix()), matrix())
    torch.library.opcheck(operator, (matrix(),))


def test_autocast_leaves_arguments_alone() -> None:
    a, b = matrix(), matrix(seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(multiply(a, b), a * b)


def test_vmap_repeats_an_operator() -> None:
    a, b = (torch.stack([matrix(8, seed), matrix(8, seed + 1)]) for seed in (0, 2))
    assert torch.equal(torch.vmap(multiply)(a, b), a * b)


def test_wrapped_kernels_and_grids() -> None:
    a, b = matrix(), matrix(seed=1)
    for call in (wrap_nki(product), wrap_nki(product)[1], wrap_nki(product)[(2,)], wrap_nki(wrap_nki(product))):
        assert torch.equal(call(a, b=b), a * b)
    assert torch.equal(wrap_nki(nki.simulate(product))(a, b), a * b)
    assert torch.equal(wrap_nki(product.func)(a, b), a * b)


def test_an_unknown_call_is_refused() -> None:
    with FakeTensorMode():
        wrap_nki(product)(torch.empty(128, 8), torch.empty(128, 8))
    assert refused(torch.ops.nki.call_1, [matrix()], "of_another_process").code == "torch.unknown-call"

"""Functions through ``torch.compile(backend="neuron")`` and on the device, where kernels and not only graphs decide."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from nki.graph.errors import GraphError
from nki.interop.torch import enable_device


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function):
    return torch.compile(function, backend="neuron", fullgraph=True)


def test_integers_are_averaged_as_floats_compiled_and_eager() -> None:
    enable_device()
    x = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    wanted = [x.mean(dtype=torch.float32), x.mean(1, dtype=torch.float16)]
    found = compiled(lambda x: (x.mean(dtype=torch.float32), x.mean(1, dtype=torch.float16)))(x)
    there = x.to("neuron")
    eager = there.mean(dtype=torch.float32), there.mean(1, dtype=torch.float16)
    for one, two, three in zip(found, eager, wanted, strict=True):
        assert torch.equal(one, three)
        assert torch.equal(two.cpu(), three)


def test_arguments_that_share_memory() -> None:
    def changed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    def overlapping() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        whole = torch.arange(24.0).reshape(4, 6)
        return whole, whole[1:, 1::2], whole[:3, :3]

    (one, *given), (two, *others) = overlapping(), overlapping()
    torch.testing.assert_close(compiled(changed)(*given), changed(*others))
    assert torch.equal(one, two)


@pytest.mark.parametrize("dtype", [torch.int16, torch.float8_e5m2, torch.bfloat16])
def test_bits_are_read_as_other_types(dtype: torch.dtype) -> None:
    bits = torch.randint(0, 256, (3, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for other in (torch.uint8, torch.float32):
        for source, wanted in ((bits.view(dtype), other), (bits.view(other), dtype)):
            found = compiled(lambda x, wanted=wanted: x.view(wanted))(source)
            assert found.dtype == wanted
            assert torch.equal(found.view(torch.uint8), bits)


def test_bits_of_64_bits_are_refused() -> None:
    with pytest.raises(GraphError, match=r"graph\.unsupported.*torch\.int64 has other bits on the device"):
        compiled(lambda x: x.view(torch.int32))(torch.arange(4))


def test_views_outside_of_their_memory_are_refused() -> None:
    with pytest.raises(GraphError, match=r"reach elements 3 to 12 of memory that has 0 to 11"):
        compiled(lambda x: x.as_strided((2, 4), (6, 1), 3))(torch.zeros(3, 4))
    with pytest.raises(GraphError, match=r"have no element to choose"):
        compiled(lambda x: x.max())(torch.zeros(0, 4))


@pytest.mark.parametrize(
    ("kind", "foreach"), [("AdamW", False), ("AdamW", True), ("SGD", True), ("RMSprop", False), ("Adafactor", False)]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::nki.report.NkiWarning")  # Adafactor reads its step in Python, which is told
def test_steps_of_optimisers(kind: str, foreach: bool) -> None:
    torch.manual_seed(0)
    options = {"SGD": {"momentum": 0.9, "nesterov": True}, "RMSprop": {"centered": True}}
    found = []
    for compiling in (False, True):
        leaves = [torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(), torch.ones((), requires_grad=True)]
        made = getattr(torch.optim, kind)(leaves, lr=0.1, foreach=foreach, weight_decay=0.1, **options.get(kind, {}))
        step = torch.compile(made.step, backend="neuron") if compiling else made.step
        for number in range(2):
            for leaf in leaves:
                leaf.grad = torch.full_like(leaf, 0.5 + number)
            step()
        found.append(leaves)
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_draws_the_same_again() -> None:
    weight = torch.linspace(-1, 1, 64).reshape(8, 8)
    dropped = compiled(lambda x: checkpoint(lambda x: F.dropout(x @ weight, 0.5), x, use_reentrant=False))
    x = torch.rand(64, 8, requires_grad=True)
    first, second = dropped(x), dropped(x)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    kept = (first != 0).float() * 2
    torch.testing.assert_close(gradient, kept @ weight.t())
    assert 0.3 < float(kept.mean()) / 2 < 0.7
    assert not torch.equal(first, second)


def test_gradients_of_products_of_groups() -> None:
    ends = torch.tensor([4, 4, 16], dtype=torch.int32)
    found = []
    for change in (lambda f: f, compiled):
        x = torch.linspace(-1, 1, 16 * 32).reshape(16, 32).bfloat16().requires_grad_()
        y = torch.linspace(1, -1, 3 * 32 * 16).reshape(3, 32, 16).bfloat16().requires_grad_()
        change(lambda x, y: torch._grouped_mm(x, y, offs=ends).float().sin().sum())(x, y).backward()
        found.append((x.grad, y.grad))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one)


def _of_a_library(x: torch.Tensor, y: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    """As libraries define products of groups for compilers: group by group, with sizes that depend on values."""
    made, start = x.new_zeros(len(x), y.shape[2]), 0
    for group, end in enumerate(offs.tolist()):
        made[start:end] = x[start:end] @ y[group]
        start = end
    return made


def _gradients_of_a_library(
    x: torch.Tensor, y: torch.Tensor, offs: torch.Tensor, gradient: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    dx, dy, start = torch.zeros_like(x), torch.zeros_like(y), 0
    for group, end in enumerate(offs.tolist()):
        dx[start:end] = gradient[start:end] @ y[group].t()
        dy[group] = x[start:end].t() @ gradient[start:end]
        start = end
    return dx, dy


def test_products_of_groups_under_the_name_of_a_library() -> None:
    library = "transformers::grouped_mm_fallback"
    product = torch.library.custom_op(library, _of_a_library, mutates_args=())
    product.register_fake(lambda x, y, offs: x.new_empty(len(x), y.shape[2]))
    gradients = torch.library.custom_op(f"{library}_backward", _gradients_of_a_library, mutates_args=())
    gradients.register_fake(lambda x, y, offs, gradient: (torch.empty_like(x), torch.empty_like(y)))

    def keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(*inputs)

    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return *gradients(*ctx.saved_tensors, gradient), None

    product.register_autograd(backward, setup_context=keep)
    ends = torch.tensor([5, 5, 12], dtype=torch.int32)
    found = []
    for change in (lambda f: f, compiled):
        x = torch.linspace(-1, 1, 16 * 8).reshape(16, 8).requires_grad_()
        y = torch.linspace(1, -1, 3 * 8 * 6).reshape(3, 8, 6).requires_grad_()
        made = change(lambda x, y: product(x, y, ends))(x, y)
        made.sin().sum().backward()
        found.append((made, x.grad, y.grad))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(two, one)

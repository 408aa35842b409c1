"""Functions of PyTorch at the edges of what their converters do: integers that are averaged, tensors without elements,
views by places in memory, bits read as another type, one number for all dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tests.graph.importers.torch.cases import Case, drawn, gradient, random, whole

aten = torch.ops.aten


def _integers() -> Iterator[Case]:
    """Means, sums and products of integers and truth values, which are converted before they are added."""
    numbers = torch.arange(12).reshape(3, 4) - 3
    kinds = {"int64": numbers, "int16": numbers.short(), "uint8": numbers.abs().byte(), "bool": numbers % 3 > 0}
    for name, x in kinds.items():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            yield f"mean-{name}-{dtype}", lambda a, d=dtype: _averages(a, d), (x,)
        yield f"counts-{name}", lambda a: (a.any(), a.all(1), a.any(0, keepdim=True), a.sum(1), a.prod(0)), (x,)
    yield "norm-dtype", lambda a: torch.linalg.vector_norm(a, 2, 1, dtype=torch.float64), (random(3, 4),)
    yield "sum-rounds-first", lambda a: a.sum(1, dtype=torch.bfloat16), (torch.tensor([[256.5, 256.5, -512.0]]),)
    images = torch.arange(96).reshape(1, 2, 6, 8) - 50
    for name, options in {"2": {"kernel_size": 2}, "3": {"kernel_size": 3, "stride": 2, "padding": 1}}.items():
        yield f"avg_pool-int-{name}", lambda a, o=options: F.avg_pool2d(a, **o), (images,)
        yield (
            f"avg_pool3d-int-{name}",
            lambda a, o=options: F.avg_pool3d(a.expand(4, 2, 6, 8)[None, :, :1].expand(1, 4, 4, 6, 8), **o),
            (images,),
        )
    yield "avg_pool-int-divisor", lambda a: F.avg_pool2d(a, 2, divisor_override=3), (images,)


def _averages(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    means = x.mean(dtype=dtype), x.mean(1, dtype=dtype), x.mean((0, 1), keepdim=True, dtype=dtype)
    return *means, x.sum(0, dtype=dtype), x.prod(1, dtype=dtype), x.cumsum(1, dtype=dtype)


def _nothing() -> Iterator[Case]:
    """Reductions and products over no element."""
    none, cube = torch.zeros(0, 5), torch.zeros(3, 0, 4)
    for name, function in _OF_NONE.items():
        yield f"none-{name}", function, (none,)
    inner = lambda a: (a.mean(1), a.var(1), a.sum((0, 2)), a.logsumexp(1), a.transpose(1, 2) @ a)  # noqa: E731
    yield "none-inner", inner, (cube,)
    yield "none-half", lambda a: (a.mean(1), a.var(1), a.logsumexp(1)), (cube.bfloat16(),)
    yield "none-int", lambda a: (a.sum(1), a.prod(1), a.mean(1, dtype=torch.float32)), (cube.int(),)
    yield "none-normalised", lambda a: F.layer_norm(a.transpose(1, 2), (0,)), (cube,)
    yield "one-var", lambda a: (a.var(0), a.var(0, correction=0), a.std(1, correction=7)), (random(1, 5),)


_OF_NONE: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": lambda a: (a.mean(), a.mean(0), a.mean(1), a.mean(0, keepdim=True)),
    "var": lambda a: (a.var(), a.var(0), *torch.var_mean(a, 0), *torch.std_mean(a)),
    "sum": lambda a: (a.sum(), a.sum(0), a.sum(1), a.prod(), a.prod(0), a.cumsum(0)),
    "truth": lambda a: (a.any(), a.all(), a.any(0), a.all(1)),
    "norm": lambda a: (a.norm(), a.norm(dim=0), a.norm(1, dim=1)),
    "softmax": lambda a: (a.softmax(0), a.softmax(1), a.logsumexp(0)),
    "product": lambda a: (a.t() @ a, a @ a.t(), torch.addmm(torch.ones(5, 5), a.t(), a)),
    "linear": lambda a: (F.linear(a, torch.ones(3, 5)), F.linear(a.t(), torch.ones(3, 0), torch.ones(3))),
    "cat": lambda a: (torch.cat([a, a]), torch.cat([a, torch.ones(2, 5)])),
    "layer_norm": lambda a: F.layer_norm(a, (5,), torch.ones(5), torch.ones(5)),
    "embedding": lambda a: F.embedding(a.flatten().long(), torch.ones(4, 3)),
    "conv": lambda a: F.conv2d(a[:, None, :, None].expand(0, 1, 5, 5), torch.ones(2, 1, 3, 3), torch.ones(2)),
    "median": lambda a: (a.median(), a.nanmedian()),
    "loss": lambda a: (F.mse_loss(a, a), F.l1_loss(a, a + 1)),
    "largest": lambda a: (a.amax(1), a.argmax(1)),
}  # fmt: skip


def _strided() -> Iterator[Case]:
    """Views by places in memory, and bits read as another type."""
    x = random(2, 3, 4)
    for name, function in _VIEWS.items():
        yield f"strided-{name}", function, (x,)
    changed = lambda a: a.mul(1).as_strided((3, 2), (4, 1), 1).mul_(3)  # noqa: E731
    yield "strided-write", changed, (x,)
    yield "strided-backward", gradient(lambda a: a.as_strided((3, 4), (2, 1), 1).sin()), (x,)
    yield "strided-windows-backward", gradient(lambda a: a.as_strided((4, 3), (1, 1)).sin()), (x,)
    yield "diagonal-backward", gradient(lambda a: a.diagonal(1, 0, 2).sin()), (x,)
    for source, wanted in ((torch.float32, torch.int32), (torch.float32, torch.int16), (torch.int16, torch.float32),
                           (torch.bfloat16, torch.int16), (torch.uint8, torch.int32), (torch.int32, torch.uint8),
                           (torch.uint8, torch.float8_e4m3fn), (torch.float16, torch.int8)):  # fmt: skip
        bits = torch.randint(0, 120, (3, 16), dtype=torch.uint8).view(source)
        yield f"bits-{source}-{wanted}", lambda a, w=wanted: _in_bytes(a.view(w)), (bits,)
    yield "bits-bool", lambda a: (a.view(torch.bool), a.bool().view(torch.uint8)), (whole(3, 4, low=0, high=2).byte(),)
    yield "bits-copy", lambda a: aten.view_copy.dtype(a, torch.int32), (x,)
    yield "bits-computed", lambda a: ((a * 2).view(torch.int32) & 0x7FFFFFFF).view(torch.float32), (x,)


def _in_bytes(x: torch.Tensor) -> torch.Tensor:
    """Numbers of one byte, which cannot be compared with a tolerance, as float32."""
    return x.float() if x.is_floating_point() and x.dtype.itemsize == 1 else x


_VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rows": lambda a: a.as_strided((2, 2), (3, 1), 1) + 0,
    "column": lambda a: a.as_strided((2,), (3,), 2) + 0,
    "windows": lambda a: a.as_strided((4, 3), (2, 1), 1) + 0,
    "turned": lambda a: a.as_strided((2, 2, 2), (2, 12, 5), 1) + 0,
    "repeated": lambda a: a.as_strided((3, 4, 2), (1, 0, 5), 2) + 0,
    "scalar": lambda a: a.as_strided((), (), 5) + 0,
    "none": lambda a: a.as_strided((0, 3), (3, 1)) + 0,
    "of-slice": lambda a: a[1].as_strided((2, 3), (4, 1)) + 0,
    "beyond-slice": lambda a: a[1].as_strided((2, 3), (4, 1), 2) + 0,
    "of-transposed": lambda a: a.transpose(0, 2).as_strided((4, 2), (1, 3)) + 0,
    "of-computed": lambda a: (a.transpose(0, 2) + 1).as_strided((6, 2), (1, 3)) + 0,
    "copy": lambda a: torch.as_strided_copy(a, (2, 2), (3, 1), 1),
    "scatter": lambda a: torch.as_strided_scatter(a.transpose(0, 1) + 0, torch.ones(2, 2), (2, 2), (3, 1), 1),
    "diagonal": lambda a: torch.diagonal_scatter(a, torch.arange(8.0).reshape(4, 2), 0, 0, 1),
    "unfold": lambda a: a.unfold(2, 3, 1).unfold(1, 2, 1) + 0,
    "unfold-scalar": lambda a: a[0, 0, 0].unfold(0, 1, 1) + 0,
}


def _convolutions() -> Iterator[Case]:
    for size in ("valid", "same"):
        for rank, function in enumerate((F.conv1d, F.conv2d, F.conv3d), 1):
            data, kernel = random(2, 4, *(5, 6, 4)[:rank]), random(6, 2, *(3, 3, 3)[:rank])
            spread = lambda x, w, f=function, s=size: f(x, w, padding=s, groups=2)  # noqa: E731
            yield f"conv{rank}-{size}", spread, (data, kernel)
            yield f"conv{rank}-{size}-backward", gradient(spread), (data, kernel)
    one = lambda x, w: torch.convolution(x, w, None, [2], [1], [1], True, [1], 1)  # noqa: E731
    yield "deconv-one-number-for-all", one, (random(1, 4, 5, 6), random(4, 3, 3, 2))


def _counted() -> Iterator[Case]:
    """Numbers in bins, and products of groups of rows, columns or inner elements."""
    edges = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, float("nan")])
    for bins, low, high in ((4, 0, 4), (3, -1.5, 2)):
        yield f"histc-{bins}", lambda a, b=bins, x=low, y=high: torch.histc(a, b, x, y), (edges,)
    yield "histc-own-range", lambda a: torch.histc(a, 7), (random(40),)
    yield "histc-none", lambda a: torch.histc(a, 4, 0, 1), (torch.zeros(0),)
    half, ends = torch.bfloat16, torch.tensor([4, 4, 9, 16], dtype=torch.int32)
    rows, stack, cube = (random(*shape, dtype=half) for shape in ((16, 32), (4, 32, 24), (4, 8, 32)))
    yield "groups-rows", lambda x, y, o: torch._grouped_mm(x, y, offs=o), (rows, stack, ends)
    yield "groups-inner", lambda x, y, o: torch._grouped_mm(x.t(), y, offs=o), (rows, random(16, 24, dtype=half), ends)
    yield "groups-columns", lambda x, y, o: torch._grouped_mm(x, y.t(), offs=o), (cube, rows, ends)
    yield "groups-all", torch._grouped_mm, (cube, stack)


def _complex() -> Iterator[Case]:
    """Complex numbers, and Fourier transforms."""
    pairs, angles = random(4, 6, 2), random(4, 6)
    x, y = torch.view_as_complex(random(4, 6, 2)), torch.view_as_complex(random(4, 6, 2))
    yield "complex-rotary", _rotated, (random(2, 4, 3, 12), angles)
    yield "complex-rotary-backward", gradient(_rotated), (random(2, 4, 3, 12), angles)
    yield "complex-parts", lambda a: torch.view_as_real(torch.view_as_complex(a) * 1j), (pairs,)
    yield "complex-copies", lambda a: aten.view_as_real_copy(aten.view_as_complex_copy(a)), (pairs,)
    yield "complex-made", lambda a: torch.complex(a, a + 1), (angles,)
    yield "angle-real", torch.angle, (angles,)
    for name, function in _OF_COMPLEX.items():
        yield f"complex-{name}", function, (x, y)
    yield "complex-bits", lambda a, b: (a.view(torch.float32), b.view(torch.complex64)), (x, angles)
    for norm in ("backward", "ortho", "forward"):
        yield f"fft-{norm}", lambda a, n=norm: (torch.fft.fft(a, norm=n), torch.fft.ifft(a, 8, 0, n)), (x,)
        yield f"rfft-{norm}", lambda a, n=norm: torch.fft.irfft(torch.fft.rfft(a, norm=n) * 2j, 6, norm=n), (angles,)
    yield "fft-several", lambda a, b: (torch.fft.fft2(a), torch.fft.rfft2(b), torch.fft.irfft2(a)), (x, angles)
    yield "fft-real", torch.fft.fft, (angles,)
    yield "fft-backward", gradient(lambda a: torch.fft.rfft(a).abs()), (angles,)


def _rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """A rotary embedding: neighbours of x[batch, place, head, ...] are complex numbers, turned by an angle."""
    turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(3)


_OF_COMPLEX: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y: (x + y, x - 2 * y, x * y, x / y, -x, 1 / x, x.reciprocal(), 1j + x),
    "conjugate": lambda x, y: (x.conj() * y, x.conj_physical() + 0, aten._conj_copy(x), x.conj().resolve_conj() + 1),
    "to-real": lambda x, y: (x.real + 0, y.imag * 2, x.abs(), y.angle(), x.norm(dim=1)),
    "functions": lambda x, y: (x.exp(), y.log(), x.sqrt(), y.rsqrt(), x.sin(), y.cos(), x**2, x**y, torch.sgn(y)),
    "sums": lambda x, y: (x.sum(), y.mean(1), x.cumsum(0)),
    "products": lambda x, y: (x @ y.t(), x @ y.mH, torch.einsum("ij,kj->ik", x, y.conj())),
    "moves": lambda x, y: (x.t() + 1, x[1:, ::2] + 0, x.flip(0), torch.cat([x, y], 1), F.pad(y, (1, 2)), x.tril()),
    "picks": lambda x, y: (x[torch.tensor([2, 0])], x.index_put((torch.tensor([1, 2]),), y[:2])),
    "choices": lambda x, y: (torch.where(x.real > 0, x, y), x == y, x != x.conj(), x.real.to(torch.complex64)),
}  # fmt: skip


def edges() -> list[Case]:
    """All of them, the same in every process."""
    return drawn((_integers, _nothing, _strided, _convolutions, _counted, _complex))

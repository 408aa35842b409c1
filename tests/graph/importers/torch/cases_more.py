"""More functions of PyTorch with inputs: scans, searches, scatters, gammas, quantisation, images, derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from tests.graph.importers.torch.cases import Case, drawn, gradient, random, whole

aten = torch.ops.aten

INF, NAN = math.inf, math.nan


def _scans() -> Iterator[Case]:
    x, i = random(3, 7), whole(3, 7, low=0, high=3)
    gaps = torch.tensor([[1.0, NAN, 3.0, NAN, 0.0], [-INF, -INF, 2.0, 2.0, INF], [NAN, 1.0, -INF, INF, INF]])
    for name in ("cummax", "cummin"):
        function = getattr(torch, name)
        yield name, lambda a, f=function: tuple(f(a, -1)), (x,)
        yield f"{name}-0", lambda a, f=function: tuple(f(a, 0)), (x,)
        yield f"{name}-ties", lambda a, f=function: tuple(f(a, 1)), (i,)
        yield f"{name}-nan", lambda a, f=function: tuple(f(a, 1)), (gaps,)
        yield f"{name}-bf16", lambda a, f=function: tuple(f(a, 1)), (x.to(torch.bfloat16),)
        yield f"{name}-bool", lambda a, f=function: tuple(f(a, 1)), (x > 0,)
        yield f"{name}-scalar", lambda a, f=function: tuple(f(a, 0)), (x[0, 0],)
        yield f"{name}-backward", gradient(lambda a, f=function: f(a, 1)[0]), (x,)
    yield "logcumsumexp", lambda a: torch.logcumsumexp(a, -1), (x * 40,)
    yield "logcumsumexp-special", lambda a: torch.logcumsumexp(a, 1), (gaps,)
    yield "logcumsumexp-bf16", lambda a: torch.logcumsumexp(a, 0), (x.to(torch.bfloat16),)
    yield "logcumsumexp-backward", gradient(lambda a: torch.logcumsumexp(a, 1)), (x,)


def _searches() -> Iterator[Case]:
    ends = torch.tensor([-INF, -1.0, 0.0, 0.0, 1.0, INF])
    x = torch.cat([random(9), torch.tensor([0.0, NAN, -INF, INF])])
    rows = random(3, 5).sort(1)[0]
    for right in (False, True):
        yield f"searchsorted-{right}", lambda e, a, r=right: torch.searchsorted(e, a, right=r), (ends, x)
        yield f"bucketize-{right}", lambda a, e, r=right: torch.bucketize(a, e, right=r), (x, ends)
    yield "searchsorted-rows", torch.searchsorted, (rows, random(3, 4))
    yield "searchsorted-side", lambda e, a: torch.searchsorted(e, a, side="right", out_int32=True), (rows, rows)
    mixed = rows.flip(1)
    yield "searchsorted-sorter", lambda e, a: torch.searchsorted(e, a, sorter=e.argsort(1)), (mixed, random(3, 4))
    yield "searchsorted-number", lambda e: torch.searchsorted(e, 0.5), (ends,)
    yield "searchsorted-whole", torch.searchsorted, (torch.arange(5), whole(7))
    yield "searchsorted-scalar", torch.searchsorted, (ends, x[3])
    yield "bucketize-number", lambda e: torch.bucketize(0.5, e), (ends,)


def _scattered() -> Iterator[Case]:
    x, source, place = random(5, 6), random(4, 6), whole(4, 6, low=0, high=5)
    row = torch.tensor([0, 3, 0, 5])
    for mode in ("sum", "prod", "mean", "amax", "amin"):
        for own in (True, False):
            by = lambda a, i, s, m=mode, o=own: a.scatter_reduce(0, i, s, m, include_self=o)  # noqa: E731
            yield f"scatter_reduce-{mode}-{own}", by, (x, place, source)
            yield f"scatter_reduce-{mode}-{own}-whole", by, (whole(5, 6), place, whole(4, 6))
            yield f"scatter_reduce-{mode}-{own}-backward", gradient(by), (x, place, source)
            if mode != "sum":
                at = lambda a, i, s, m=mode, o=own: a.index_reduce(-1, i, s, m, include_self=o)  # noqa: E731
                yield f"index_reduce-{mode}-{own}", at, (x, row, random(5, 4))
    yield (
        "index_reduce-scalar",
        lambda a, i, s: a.index_reduce(0, i, s, "prod"),
        (x[0, 0], torch.zeros(1, dtype=torch.int64), x[0, 1]),
    )
    yield "index_reduce-backward", gradient(lambda a, i, s: a.index_reduce(1, i, s, "amax")), (x, row, random(5, 4))
    yield (
        "scatter_reduce-bf16",
        lambda a, i, s: a.scatter_reduce(0, i, s, "mean"),
        tuple(each if each is place else each.to(torch.bfloat16) for each in (x, place, source)),
    )
    yield "scatter_reduce-empty", lambda a, i, s: a.scatter_reduce(0, i, s, "mean"), (x, place[:0], source)
    yield "scatter-add", lambda a, i, s: a.scatter(0, i, s, reduce="add"), (x, place, source)
    yield "scatter-multiply-value", lambda a, i: a.scatter(0, i, 2.0, reduce="multiply"), (x, place)
    for offset in (0, 2, -3):
        put = lambda a, d, o=offset: torch.diagonal_scatter(a, d, o, -1, 0)  # noqa: E731
        diagonal = torch.zeros(4, 5, 6).diagonal(offset, -1, 0)
        yield f"diagonal_scatter{offset}", put, (random(4, 5, 6), random(*diagonal.shape))
    yield "diagonal_scatter-backward", gradient(torch.diagonal_scatter), (x, random(5))
    strided = lambda a, s: torch.as_strided_scatter(a, s, (2, 3), (7, 2), 1)  # noqa: E731
    yield "as_strided_scatter", strided, (x, random(2, 3))
    yield "as_strided_scatter-turned", lambda a, s: strided(a.t(), s), (x, random(2, 3))
    yield "put", lambda a, i, s: a.put(i, s), (x, torch.tensor([3, -1, 7]), random(3))
    yield "put-add", lambda a, i, s: a.put(i, s, accumulate=True), (x, torch.tensor([3, -1, 3]), random(3))
    yield "masked_scatter-backward", gradient(lambda a, s: a.masked_scatter(a > 0, s)), (x, random(40))
    yield "nonzero_static", lambda a: torch.nonzero_static(a, size=4), (whole(3, 4, low=0, high=2),)
    yield "nonzero_static-more", lambda a: torch.nonzero_static(a, size=9, fill_value=-7), (torch.eye(3),)
    count = torch.tensor([2, 0, 3, 1])
    yield "repeat_interleave-counts", lambda a, n: a.repeat_interleave(n, 0, output_size=6), (x[:4], count)


def _numbers() -> Iterator[Case]:
    x, marked = (
        random(3, 5, low=-300, high=300),
        torch.tensor([[0.0, -0.0, 1.5, -1.5, INF], [-INF, NAN, 2.5, -2.5, 0.5]]),
    )
    other = torch.tensor([[1.0, NAN, -1.0, 2.0, NAN], [3.0, NAN, 1.0, INF, 0.5]])
    for name in ("fmax", "fmin"):
        function = getattr(torch, name)
        yield name, function, (marked, other)
        yield f"{name}-row", function, (other, marked[1])
        yield f"{name}-whole", function, (whole(3, 4), whole(4))
        yield f"{name}-bool", function, (x > 0, x > 100)
        yield f"{name}-backward", gradient(function), (random(3, 4), random(3, 4))
    yield "signbit", torch.signbit, (torch.tensor([0.0, -0.0, 1.0, -1.0, INF, -INF]),)
    yield "signbit-bf16", torch.signbit, (torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=torch.bfloat16),)
    yield "signbit-whole", torch.signbit, (whole(7),)
    for decimals in (2, 0, -2):
        yield f"round{decimals}", lambda a, n=decimals: torch.round(a, decimals=n), (x,)
    yield "round3-special", lambda a: torch.round(a, decimals=3), (marked,)


def _gammas() -> Iterator[Case]:
    spread = torch.cat([torch.logspace(-6, 4, 41), -torch.linspace(0.01, 9.5, 40), torch.linspace(0.8, 2.7, 39)])
    poles = torch.tensor([0.0, -0.0, -1.0, -2.0, -9.0, INF, 1.0, 2.0])
    for name in ("lgamma", "digamma"):
        exact = _in_double(getattr(torch, name))
        yield name, exact, (spread,)
        yield f"{name}-bf16", getattr(torch, name), (torch.linspace(0.5, 4, 9, dtype=torch.bfloat16),)
        yield f"{name}-backward", gradient(getattr(torch, name)), (random(9, low=0.3, high=7.0),)
        yield f"{name}-whole", getattr(torch, name), (whole(9, low=1),)
    yield "lgamma-poles", torch.lgamma, (poles,)
    yield "digamma-poles", torch.digamma, (poles[:5],)
    yield "mvlgamma", lambda a: torch.mvlgamma(a, 3), (random(9, low=1.2, high=7.0),)
    for order in (1, 2, 4):
        yield f"polygamma{order}", _in_double(lambda a, n=order: torch.polygamma(n, a)), (random(20, low=0.3, high=9),)
    yield "polygamma-below", _in_double(lambda a: torch.polygamma(1, a)), (torch.tensor([-0.3, -1.6, -4.5]),)


def _in_double(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """PyTorch's own float32 is not exact enough to compare with; a traced function stays in float32."""

    def call(x: torch.Tensor) -> torch.Tensor:
        return function(x) if torch.compiler.is_compiling() or _traced(x) else function(x.double()).float()

    return call


def _traced(x: torch.Tensor) -> bool:
    return type(x) is not torch.Tensor


def _quantised() -> Iterator[Case]:
    x = torch.cat([random(3, 10, low=-9.0, high=9.0), torch.tensor([[NAN], [INF], [-INF]])], 1)
    zero = torch.tensor([3, 0, 5], dtype=torch.int32)
    plain = lambda a: torch.fake_quantize_per_tensor_affine(a, 0.1, 3, 0, 255)  # noqa: E731
    yield "fake_quantize", plain, (x,)
    yield "fake_quantize-backward", gradient(plain), (x[:, :10],)
    by_tensors = lambda a, s, z: torch.fake_quantize_per_tensor_affine(a, s, z, -8, 7)  # noqa: E731
    yield "fake_quantize-tensors", by_tensors, (x, torch.tensor(0.3), torch.tensor(2, dtype=torch.int32))
    channels = lambda a, s, z: torch.fake_quantize_per_channel_affine(a, s, z, 0, 0, 15)  # noqa: E731
    yield "fake_quantize-channels", channels, (x[:, :10], torch.tensor([0.1, 0.25, 0.7]), zero)
    learnt = lambda a, s, z: torch._fake_quantize_learnable_per_tensor_affine(a, s, z, -8, 7, 0.5)  # noqa: E731
    given = (x[:, :10], torch.tensor([0.3]), torch.tensor([2.0]))
    yield "fake_quantize-learnt", learnt, given
    yield "fake_quantize-learnt-backward", gradient(learnt), given
    by = lambda a, s, z: torch._fake_quantize_learnable_per_channel_affine(a, s, z, 0, -8, 7, 0.5)  # noqa: E731
    given = (x[:, :10], torch.tensor([0.3, 0.5, 0.9]), torch.tensor([2.0, 0.0, -3.0]))
    yield "fake_quantize-learnt-channels", by, given
    yield "fake_quantize-learnt-channels-backward", gradient(by), given
    left = whole(32, 16, low=-128, high=128, dtype=torch.int8)
    yield "int_mm", torch._int_mm, (left, whole(16, 8, low=-128, high=128, dtype=torch.int8))


def _resized() -> Iterator[Case]:
    image, cube = random(2, 3, 9, 8), random(1, 2, 5, 6, 7)
    marked = image.clone()
    marked[0, 0, 2, 3], marked[1, 1, 5, 5], marked[1, 1, 5, 6] = NAN, INF, NAN
    for size in ((2, 3), (4, 5), (1, 1), (11, 3), (9, 8)):
        best = lambda a, s=size: F.adaptive_max_pool2d(a, s, return_indices=True)  # noqa: E731
        yield f"adaptive_max-{size}", best, (marked,)
        yield f"adaptive_max-{size}-backward", gradient(lambda a, f=best: f(a)[0]), (image,)
        yield f"adaptive_avg-{size}-special", lambda a, s=size: F.adaptive_avg_pool2d(a, s), (marked,)
    for size in ((2, 3, 4), (5, 4, 7)):
        best = lambda a, s=size: F.adaptive_max_pool3d(a, s, return_indices=True)  # noqa: E731
        mean = lambda a, s=size: F.adaptive_avg_pool3d(a, s)  # noqa: E731
        yield f"adaptive_max-{size}", best, (cube,)
        yield f"adaptive_max-{size}-backward", gradient(lambda a, f=best: f(a)[0]), (cube,)
        yield f"adaptive_avg-{size}", mean, (cube,)
        yield f"adaptive_avg-{size}-backward", gradient(mean), (cube,)
    yield "adaptive_max-1d", lambda a: F.adaptive_max_pool1d(a, 3, return_indices=True), (cube[0, 0],)
    for mode in ("bilinear", "bicubic"):
        for size, align in (((4, 3), False), ((13, 11), True)):
            smooth = lambda a, m=mode, s=size, c=align: F.interpolate(  # noqa: E731
                a, size=s, mode=m, align_corners=c, antialias=True
            )
            plain = lambda a, m=mode, s=size, c=align: F.interpolate(a, size=s, mode=m, align_corners=c)  # noqa: E731
            yield f"antialias-{mode}-{size}", smooth, (image,)
            yield f"antialias-{mode}-{size}-backward", gradient(smooth), (image,)
            yield f"{mode}-{size}-backward", gradient(plain), (image,)
    yield "lanczos", lambda a: aten._upsample_lanczos2d_aa(a, [4, 12], False), (image,)
    yield "lanczos-backward", gradient(lambda a: aten._upsample_lanczos2d_aa(a, [4, 12], False)), (image,)
    line, nearest = cube[0, :, 0], ("nearest", "nearest-exact")
    for mode, x in (*product(nearest, (line, image, cube)), ("linear", line), ("trilinear", cube)):
        for factor in (1.7, 0.6):
            by = lambda a, m=mode, f=factor: F.interpolate(a, scale_factor=f, mode=m)  # noqa: E731
            yield f"{mode}-{x.dim()}-{factor}", by, (x,)
            yield f"{mode}-{x.dim()}-{factor}-backward", gradient(by), (x,)


def _derivatives() -> Iterator[Case]:
    image, cube, x = random(2, 3, 9, 8), random(1, 2, 5, 6, 7), random(4, 5)
    for name, options in {
        "2": {"kernel_size": 2},
        "3-2-1": {"kernel_size": 3, "stride": 2, "padding": 1},
        "ceil": {"kernel_size": (3, 2, 3), "stride": 2, "ceil_mode": True},
    }.items():
        yield f"avg_pool3d-{name}-backward", gradient(lambda a, o=options: F.avg_pool3d(a, **o)), (cube,)
        yield f"max_pool3d-{name}-backward", gradient(lambda a, o=options: F.max_pool3d(a, **o)), (cube,)
    inner = {"stride": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True}
    yield "avg_pool3d-inner-backward", gradient(lambda a: F.avg_pool3d(a, 3, **inner)), (cube,)
    yield "avg_pool3d-divisor-backward", gradient(lambda a: F.avg_pool3d(a, 2, divisor_override=3)), (cube,)
    for rank, given in ((1, cube[0, 0]), (2, image), (3, cube)):
        for name, pads in {"": (2, 1, 1, 3, 1, 2), "-less": (-1, 2, 1, -2, 2, -1)}.items():
            around = lambda a, p=pads[: 2 * rank]: F.pad(a, p, mode="replicate")  # noqa: E731
            yield f"replicate{rank}{name}-backward", gradient(around), (given,)
    for p in (0.0, 1.0, 1.5, 2.0, INF):
        pair = gradient(lambda a, b, p=p: torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist"))
        yield f"cdist-{p}-backward", pair, (random(2, 5, 3), random(4, 3))
        yield f"pdist-{p}-backward", gradient(lambda a, p=p: F.pdist(a, p)), (random(5, 3),)
    yield "hardshrink-backward", gradient(F.hardshrink), (x,)
    yield "softshrink-backward", gradient(F.softshrink), (x,)
    classes, weights = torch.tensor([0, 2, 3, 1]), torch.arange(1, 6)
    for p in (1, 2):
        loss = lambda a, t, w, p=p: F.multi_margin_loss(a, t, p, 1.0, w.float())  # noqa: E731
        yield f"multi_margin{p}-backward", gradient(loss), (x, classes, weights)
    several = torch.tensor([[3, 0, -1, -1, -1], [1, -1, -1, -1, -1], [-1, -1, -1, -1, -1], [0, 1, 2, 3, 4]])
    yield "multilabel_margin-backward", gradient(F.multilabel_margin_loss), (x, several)
    bag = lambda w, i, o, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p)  # noqa: E731
    given = (random(9, 4), whole(11, low=0, high=9), torch.tensor([0, 3, 3, 7]), random(11))
    yield "embedding_bag-weights-backward", gradient(bag), given
    yield "rrelu-eval-backward", gradient(F.rrelu), (x,)
    yield from _grids(image, cube)


def _grids(image: torch.Tensor, cube: torch.Tensor) -> Iterator[Case]:
    flat, deep = random(2, 4, 5, 2, low=-1.5, high=1.5), random(1, 2, 4, 3, 3, low=-1.5, high=1.5)
    for mode, pad, align in (
        ("bilinear", "zeros", False), ("bilinear", "reflection", True), ("nearest", "border", False),
        ("bicubic", "reflection", False),
    ):  # fmt: skip
        by = lambda a, g, m=mode, p=pad, c=align: F.grid_sample(a, g, m, p, c)  # noqa: E731
        yield f"grid-{mode}-{pad}-backward", gradient(by), (image, flat)
        if pad != "reflection":
            yield f"grid3d-{mode}-{pad}", by, (cube, deep)
            yield f"grid3d-{mode}-{pad}-backward", gradient(by), (cube, deep)


def _called() -> Iterator[Case]:
    """Derivatives by their own names: graphs have others in their place, calls of single operators have these."""
    x, cube = random(4, 5), random(1, 2, 5, 6, 7)
    for rank, name in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d"), (2, "bicubic2d")):
        whole_size = [1, 2, *(5, 6, 7)[:rank]]
        backward = getattr(aten, f"upsample_{name}_backward")
        for align in (False, True):
            by = lambda g, f=backward, s=whole_size, c=align: f(g, list(g.shape[2:]), s, c)  # noqa: E731
            yield f"{name}-{align}-derivative", by, (random(1, 2, *(9, 4, 8)[:rank]),)
    for rank, exact in product((1, 2, 3), (False, True)):
        backward = getattr(aten, f"{'_upsample_nearest_exact' if exact else 'upsample_nearest'}{rank}d_backward")
        by = lambda g, f=backward, n=rank: f(g, list(g.shape[2:]), [1, 2, *(5, 6, 7)[:n]])  # noqa: E731
        yield f"nearest-{rank}-{exact}-derivative", by, (random(1, 2, *(9, 4, 8)[:rank]),)
    yield "trilinear-called", lambda a: aten.upsample_trilinear3d(a, [9, 4, 8], False), (cube,)
    yield "hardshrink-derivative", lambda g, a: aten.hardshrink_backward(g, a, 0.5), (x, random(4, 5))
    yield "softshrink-derivative", lambda g, a: aten.softshrink_backward(g, a, 0.5), (x, random(4, 5))
    classes = torch.tensor([0, 2, 3, 1])
    for p in (1, 2):
        margin = lambda g, a, t, p=p: aten.multi_margin_loss_backward(g, a, t, p, 1.0, None, 1)  # noqa: E731
        yield f"multi_margin{p}-derivative", margin, (random(1)[0], x, classes)
    several = torch.tensor([[3, 0, -1, 2, 1], [1, -1, 0, 0, 0], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]])
    marked = aten.multilabel_margin_loss_forward(x, several, 1)[1]
    slope = lambda g, a, t, m: aten.multilabel_margin_loss_backward(g, a, t, 1, m)  # noqa: E731
    yield "multilabel_margin-derivative", slope, (random(1)[0], x, several, marked)
    index, bag = torch.tensor([1, 5, 1, 2]), torch.tensor([0, 0, 1, 1])
    dense = lambda g, i, b, s: aten._embedding_bag_dense_backward(g, i, b, s, s, 7, False, 1, None)  # noqa: E731
    yield "embedding_bag-dense-derivative", dense, (random(2, 3), index, bag, torch.tensor([2, 2]))


def _fused() -> Iterator[Case]:
    """Attention as one operator: that of the CPU, and that of graphics cards, which the CPU can only trace."""
    q, k, v, gradient_of_result = (random(2, 4, size, 8) for size in (5, 7, 7, 5))
    for causal in (False, True):
        keys, values = (k[:, :, :5], v[:, :, :5]) if causal else (k, v)
        forward = lambda q, k, v, c=causal: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, c)  # noqa: E731
        backward = lambda *given, c=causal: aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, 0.0, c)  # noqa: E731
        kept = (gradient_of_result, q, keys, values, *forward(q, keys, values))
        yield f"fused-attention-{causal}", forward, (q, keys, values)
        yield f"fused-attention-{causal}-derivative", backward, kept
        traced = lambda q, k, v, c=causal, cpu=forward: _traced_flash(q, k, v, c, cpu)  # noqa: E731
        yield f"flash-attention-{causal}", traced, (q, keys, values)
        traced_backward = lambda *given, c=causal, cpu=backward: _traced_flash_backward(*given, causal=c, cpu=cpu)  # noqa: E731
        yield f"flash-attention-{causal}-derivative", traced_backward, kept


def _traced_flash(q: Any, k: Any, v: Any, causal: bool, cpu: Any) -> Any:
    try:
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]
    except NotImplementedError:
        return cpu(q, k, v)


def _traced_flash_backward(*given: Any, causal: bool, cpu: Any) -> Any:
    seed, lengths = given[0].new_empty(2, dtype=torch.int64), (given[1].shape[2], given[2].shape[2])
    try:
        return aten._scaled_dot_product_flash_attention_backward(*given, None, None, *lengths, 0.0, causal, seed, seed)
    except NotImplementedError:
        return cpu(*given)


def more_cases() -> list[Case]:
    """All of them, the same in every process."""
    return drawn(
        (_scans, _searches, _scattered, _numbers, _gammas, _quantised, _resized, _derivatives, _called, _fused)
    )

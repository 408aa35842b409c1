"""Functions of PyTorch with inputs, one for each thing that a converter has to do: compared with PyTorch on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch._inductor import inductor_prims

Case = tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]

aten = torch.ops.aten


def random(*shape: int, dtype: torch.dtype = torch.float32, low: float = -2.0, high: float = 2.0) -> torch.Tensor:
    return (torch.rand(shape) * (high - low) + low).to(dtype)


def whole(*shape: int, low: int = -9, high: int = 10, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, dtype=dtype)


def _special() -> torch.Tensor:
    inf, nan = math.inf, math.nan
    return torch.tensor([[0.0, -0.0, 1.5, -1.5, inf], [-inf, nan, 2.5, -2.5, 0.5]])


_UNARY: dict[str, tuple[float, float]] = {
    "abs": (-2, 2), "neg": (-2, 2), "exp": (-2, 2), "log": (0.1, 4), "log1p": (-0.5, 4), "expm1": (-2, 2),
    "sqrt": (0, 4), "rsqrt": (0.1, 4), "sin": (-6, 6), "cos": (-6, 6), "tan": (-1, 1), "tanh": (-2, 2),
    "sigmoid": (-6, 6), "ceil": (-4, 4), "floor": (-4, 4), "round": (-4, 4), "sign": (-2, 2), "erf": (-3, 3),
    "erfc": (-3, 3), "erfinv": (-0.9, 0.9), "exp2": (-3, 3), "log2": (0.1, 4), "log10": (0.1, 4),
    "reciprocal": (0.5, 3), "asin": (-1, 1), "acos": (-1, 1), "atan": (-4, 4), "asinh": (-9, 9), "acosh": (1, 9),
    "atanh": (-0.9, 0.9), "sinh": (-3, 3), "cosh": (-3, 3), "trunc": (-4, 4), "sgn": (-2, 2), "frac": (-4, 4),
    "square": (-2, 2), "relu": (-2, 2), "positive": (-2, 2), "logit": (0.1, 0.9),
}  # fmt: skip

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "elu": F.elu,
    "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "relu6": F.relu6, "softplus": F.softplus, "mish": F.mish,
    "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "selu": F.selu, "softmax": lambda x: F.softmax(x, -1),
    "softmax0": lambda x: F.softmax(x, 0), "log_softmax": lambda x: F.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, 1), "glu": lambda x: F.glu(x, -1), "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "relu": F.relu, "layer_norm": lambda x: F.layer_norm(x, (8,)),
    "rms_norm": lambda x: F.rms_norm(x, (8,)), "normalize": lambda x: F.normalize(x, dim=-1),
}  # fmt: skip


def _pointwise() -> Iterator[Case]:
    for name, (low, high) in _UNARY.items():
        yield name, getattr(torch, name), (random(3, 7, low=low, high=high),)
        yield f"{name}-bf16", getattr(torch, name), (random(5, low=low, high=high, dtype=torch.bfloat16),)
    for name in ("sqrt", "exp", "sigmoid", "sin"):
        yield f"{name}-int", getattr(torch, name), (whole(9, low=1),)
    for name in ("isnan", "isinf", "isfinite", "sign", "logical_not", "round", "relu", "abs", "nan_to_num", "trunc"):
        yield f"{name}-special", getattr(torch, name), (_special(),)
    for name, function in _ACTIVATIONS.items():
        yield f"{name}", function, (random(6, 8),)
        yield f"{name}-backward", gradient(function), (random(6, 8),)
    for name in ("gelu", "silu", "softmax", "log_softmax", "layer_norm", "tanh"):
        yield f"{name}-bf16", _ACTIVATIONS[name], (random(6, 8, dtype=torch.bfloat16),)


@dataclass(frozen=True)
class Gradient:
    """The derivatives of a weighted sum of a function's results with respect to all float arguments."""

    function: Callable[..., torch.Tensor]

    def __call__(self, *inputs: torch.Tensor) -> Any:
        leaves = [x.detach().clone().requires_grad_(x.dtype.is_floating_point) for x in inputs]
        result = self.function(*leaves)
        weights = torch.arange(result.numel(), dtype=torch.float32).reshape(result.shape).sin()
        return torch.autograd.grad((result * weights).sum(), [leaf for leaf in leaves if leaf.requires_grad])


def gradient(function: Callable[..., torch.Tensor]) -> Gradient:
    return Gradient(function)


def _binary() -> Iterator[Case]:
    x, y, row = random(3, 4), random(3, 4, low=0.5), random(4, low=0.5)
    i, j = whole(3, 4), whole(3, 4, low=1)
    half = random(3, 4, dtype=torch.bfloat16)
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "fmod", "remainder", "floor_divide",
                 "eq", "ne", "lt", "le", "gt", "ge", "hypot", "copysign"):  # fmt: skip
        yield name, getattr(torch, name), (x, y)
        yield f"{name}-row", getattr(torch, name), (x, row)
    for name in ("add", "sub", "mul", "div", "floor_divide", "remainder", "fmod", "maximum", "lt", "eq", "bitwise_and",
                 "bitwise_or", "bitwise_xor", "true_divide"):  # fmt: skip
        yield f"{name}-int", getattr(torch, name), (i, j)
        yield f"{name}-mixed", getattr(torch, name), (i, j.to(torch.int32))
    for name in ("add", "mul", "div", "lt", "eq"):
        yield f"{name}-int-float", getattr(torch, name), (i, y)
        yield f"{name}-bf16-float", getattr(torch, name), (half, y)
        yield f"{name}-bf16-scalar", getattr(torch, name), (half, torch.tensor(1.25))
        yield f"{name}-bool", getattr(torch, name), (x > 0, i)
    yield "add-alpha", lambda a, b: torch.add(a, b, alpha=2.5), (x, y)
    yield "sub-alpha", lambda a, b: torch.sub(a, b, alpha=3), (i, j)
    yield "rsub", lambda a: 1.0 - a, (x,)
    yield "rdiv", lambda a: 2.0 / a, (y,)
    yield "int-plus-float", lambda a: a + 0.5, (i,)
    yield "half-plus-number", lambda a: a + 0.3, (half,)
    yield "half-times-number", lambda a: a * 3, (half,)
    yield "div-floor", lambda a, b: torch.div(a, b, rounding_mode="floor"), (i, j)
    yield "div-trunc", lambda a, b: torch.div(a, b, rounding_mode="trunc"), (i, j)
    yield "div-floor-float", lambda a, b: torch.div(a, b, rounding_mode="floor"), (x, y)
    yield "div-trunc-float", lambda a, b: torch.div(a, b, rounding_mode="trunc"), (x, y)
    yield "lt-float-number", lambda a: a < 0.5, (i,)
    yield "eq-int-number", lambda a: a == 3, (i,)
    yield "lerp", torch.lerp, (x, y, random(3, 4))
    yield "addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), (x, y, random(3, 4))
    yield "fma", inductor_prims.fma, (x, y, random(3, 4))
    yield "fma-half", inductor_prims.fma, (half, half + 1, half)
    yield "addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=0.5), (x, y, y + 1)
    for power in (2, 3, 0.5, -0.5, -1, -2, 1.7, 0, 4):
        yield f"pow-{power}", lambda a, p=power: torch.pow(a, p), (y,)
    yield "pow-tensor", torch.pow, (y, x)
    yield "pow-number-base", lambda a: torch.pow(2.0, a), (x,)
    yield "pow-int", lambda a: a**2, (i,)


def _logic() -> Iterator[Case]:
    x, y, i = random(3, 4), random(3, 4), whole(3, 4, low=0)
    mask, other = x > 0, y > 0
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield name, getattr(torch, name), (mask, other)
        yield f"{name}-int", getattr(torch, name), (i, i - 1)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        yield f"{name}-bool", getattr(torch, name), (mask, other)
    yield "bitwise-number", lambda a: (a & 6) | 1, (i,)
    yield "bitwise_not", torch.bitwise_not, (i,)
    yield "bitwise_not-bool", torch.bitwise_not, (mask,)
    yield "shifts", lambda a: (a << 3) - (a >> 1), (i,)
    yield "bool-plus", lambda a, b: a + b, (mask, other)
    yield "bool-compare", lambda a, b: a == b, (mask, other)
    yield "where", torch.where, (mask, x, y)
    yield "where-number", lambda m, a: torch.where(m, a, 0.0), (mask, x)
    yield "where-row", torch.where, (mask[:, :1], x, y[0])
    yield "masked_fill", lambda a, m: a.masked_fill(m, -1e9), (x, mask)
    yield "masked_fill-inf", lambda a, m: a.masked_fill(m, -math.inf), (x, mask)
    yield "clamp", lambda a: a.clamp(-0.5, 1), (x,)
    yield "clamp-low", lambda a: a.clamp(min=0.2), (x,)
    yield "clamp-tensor", torch.clamp, (x, -y.abs(), y.abs())
    yield "clamp-int", lambda a: a.clamp(2, 5), (i,)
    yield "to-int", lambda a: a.to(torch.int32), (x * 3,)
    yield "to-bool", lambda a: a.to(torch.bool), (i,)
    yield "to-half", lambda a: a.to(torch.bfloat16), (x,)
    yield "to-float", lambda a: a.float(), (mask,)
    yield "to-double", lambda a: a.double(), (i,)
    yield "type_as", lambda a, b: a.type_as(b), (i, x)


def _shapes() -> Iterator[Case]:
    x, y, v = random(2, 3, 4), random(2, 3, 4), random(5)
    yield "view", lambda a: a.view(6, -1) + 1, (x,)
    yield "reshape-scalar", lambda a: a.sum().reshape(1, 1), (x,)
    yield "expand", lambda a: a.expand(3, 5) * 2, (v,)
    yield "expand-minus", lambda a: a[:, None].expand(-1, 4) + 0, (v,)
    yield "permute", lambda a: a.permute(2, 0, 1) + 0, (x,)
    yield "transpose", lambda a: a.transpose(-1, 0) * 1.0, (x,)
    yield "t", lambda a: a[0].t() + 0, (x,)
    yield "unsqueeze", lambda a: a.unsqueeze(-1).unsqueeze(0) + 0, (x,)
    yield "squeeze", lambda a: a[:1].squeeze() + a[:1].squeeze(0), (x,)
    yield "slice", lambda a: a[:, 1:, ::2] + 0, (x,)
    yield "slice-negative", lambda a: a[..., -3:-1] + 0, (x,)
    yield "slice-beyond", lambda a: a[:, 1:99] + 0, (x,)
    yield "slice-empty", lambda a: torch.cat([a[3:2], a + 1]), (v,)
    yield "select", lambda a: a[1] + a[-1], (x,)
    yield "select-last", lambda a: a[..., -1] + 0, (x,)
    yield "cat", lambda a, b: torch.cat([a, b, a], 1), (x, y)
    yield "cat-promoted", lambda a, b: torch.cat([a, b], -1), (x, whole(2, 3, 2))
    yield "cat-legacy-empty", lambda a: torch.cat([torch.empty(0), a + 1]), (x,)
    yield "stack", lambda a, b: torch.stack([a, b], -1), (x, y)
    yield "split", lambda a: a.split(2, 2)[1] + a.split(2, 2)[0], (x,)
    yield "split-uneven", lambda a: a.split(2)[2] * 2, (v,)
    yield "split-sizes", lambda a: a.split([1, 3], -1)[1] + 0, (x,)
    yield "chunk", lambda a: torch.mul(*a.chunk(2, -1)), (x,)
    yield "unbind", lambda a: a.unbind(1)[0] + a.unbind(1)[2], (x,)
    yield "repeat", lambda a: a.repeat(2, 1, 3, 1), (x,)
    yield "repeat-interleave", lambda a: a.repeat_interleave(3, dim=1), (x,)
    yield "tile", lambda a: a.tile(2, 2), (v,)
    yield "flip", lambda a: a.flip(0, 2), (x,)
    yield "roll", lambda a: a.roll(1, 1), (x,)
    yield "rot90", lambda a: torch.rot90(a[0]), (x,)
    yield "pad", lambda a: F.pad(a, (1, 2, 0, 1), value=1.5), (x,)
    yield "pad-negative", lambda a: F.pad(a, (-1, 1)), (x,)
    yield "pad-reflect", lambda a: F.pad(a, (1, 1), mode="reflect"), (x,)
    yield "diagonal", lambda a: a.diagonal(1, 1, 2) + 0, (x,)
    yield "diagonal-below", lambda a: a.diagonal(-1, 2, 1) + 0, (x,)
    yield "diag_embed", torch.diag_embed, (v,)
    yield "unfold", lambda a: a.unfold(2, 2, 1) + 0, (x,)
    yield "movedim", lambda a: a.movedim(0, -1) + 0, (x,)
    yield "pixel_shuffle", lambda a: F.pixel_shuffle(a, 2), (random(1, 8, 2, 3),)
    yield "tril", lambda a: a.tril(-1), (x,)
    yield "triu", lambda a: a.triu(1), (x,)
    yield "tril-bool", lambda a: torch.ones_like(a, dtype=torch.bool).tril(), (x,)
    yield "clone-channels-last", lambda a: a.contiguous(memory_format=torch.channels_last) + 1, (random(1, 2, 3, 4),)
    yield "slice-assign", _assigned(lambda a, b: a.__setitem__((slice(None), slice(1, 3)), b)), (x, random(2, 2, 4))
    yield "slice-assign-step", _assigned(lambda a, b: a.__setitem__(slice(0, 5, 2), b)), (v, random(3))
    yield "select-assign", _assigned(lambda a, b: a.__setitem__((slice(None), 1), b)), (x, random(2, 4))
    yield "copy", _assigned(lambda a, b: a.copy_(b)), (x, whole(4))
    yield "slice-backward", gradient(lambda a: a[:, 1:, ::2] * 2), (x,)
    yield "select-backward", gradient(lambda a: a[1].exp()), (x,)
    yield "expand-backward", gradient(lambda a: a.expand(3, 5).exp()), (v,)
    yield "cat-backward", gradient(lambda a, b: torch.cat([a, b * 2], 1).exp()), (x, y)
    yield "unfold-backward", gradient(lambda a: a.unfold(0, 3, 1).exp()), (v,)


def _assigned(change: Callable[[torch.Tensor, torch.Tensor], Any]) -> Callable[..., torch.Tensor]:
    def function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        made = a.clone()
        change(made, b)
        return made

    return function


def _creation() -> Iterator[Case]:
    x = random(3, 4)
    yield "arange", lambda a: a + torch.arange(4), (x,)
    yield "arange-step", lambda a: a * torch.arange(1, 9, 2), (x,)
    yield "arange-float", lambda a: a * torch.arange(0.0, 1.0, 0.25), (x,)
    yield "linspace", lambda a: a * torch.linspace(0, 1, 4), (x,)
    yield "full", lambda a: a + torch.full((4,), 2.5), (x,)
    yield "ones-zeros", lambda a: a * torch.ones(4) + torch.zeros(3, 1), (x,)
    yield "like", lambda a: torch.full_like(a, 3) + torch.ones_like(a) + torch.zeros_like(a), (x,)
    yield "new", lambda a: a.new_full((4,), 2) + a.new_zeros(4) + a.new_ones(4), (x,)
    yield "eye", lambda a: a + torch.eye(3, 4), (x,)
    yield "scalar-tensor", lambda a: a + torch.scalar_tensor(2.0), (x,)


def _reductions() -> Iterator[Case]:
    x, i = random(3, 4, 5), whole(3, 4, 5)
    half = random(4, 64, dtype=torch.bfloat16)
    yield "sum", lambda a: a.sum(), (x,)
    yield "sum-dims", lambda a: a.sum((0, -1), keepdim=True), (x,)
    yield "sum-int", lambda a: a.sum(1), (i,)
    yield "sum-bool", lambda a: (a > 0).sum(), (x,)
    yield "sum-half", lambda a: a.sum(1), (half,)
    yield "sum-half-to-float", lambda a: a.sum(1, dtype=torch.float32), (half,)
    yield "mean", lambda a: a.mean(), (x,)
    yield "mean-dim", lambda a: a.mean(1, keepdim=True), (x,)
    yield "mean-half", lambda a: a.mean(1), (half,)
    yield "prod", lambda a: a.prod(2), (x,)
    yield "prod-all", lambda a: a[0].prod(), (x,)
    yield "amax", lambda a: a.amax((1, 2)), (x,)
    yield "amin", lambda a: a.amin(0, keepdim=True), (i,)
    yield "max-all", lambda a: a.max() - a.min(), (x,)
    yield "max-dim", lambda a: tuple(a.max(1)), (x,)
    yield "max-dim-keep", lambda a: a.max(1, keepdim=True).indices, (i,)
    yield "min-dim", lambda a: tuple(a.min(-1)), (x,)
    yield "max-backward", gradient(lambda a: a.max(1).values), (x,)
    yield "amax-backward", gradient(lambda a: a.amax(1)), (x,)
    yield "argmax", lambda a: a.argmax(1), (x,)
    yield "argmax-all", lambda a: a.argmax(), (x,)
    yield "argmax-ties", lambda a: a.argmax(-1, keepdim=True), (i,)
    yield "argmax-nan", lambda a: a.argmax(1), (_special(),)
    yield "argmin", lambda a: a.argmin(0), (x,)
    yield "any", lambda a: (a > 1.5).any(), (x,)
    yield "any-dim", lambda a: (a > 1).any(1), (x,)
    yield "all", lambda a: (a > -1).all(2, keepdim=True), (x,)
    yield "var", lambda a: a.var(1), (x,)
    yield "var-biased", lambda a: a.var((0, 2), correction=0, keepdim=True), (x,)
    yield "std", lambda a: a.std(), (x,)
    yield "std_mean", lambda a: torch.std_mean(a, 1), (x,)
    yield "norm", lambda a: a.norm(dim=1), (x,)
    yield "norm-1", lambda a: torch.linalg.vector_norm(a, 1, dim=2), (x,)
    yield "count_nonzero", lambda a: torch.count_nonzero(a, 1), (i,)
    yield "cumsum", lambda a: a.cumsum(1), (x,)
    yield "cumsum-int", lambda a: a.cumsum(0), (i,)
    yield "cumprod", lambda a: a.cumprod(2), (x,)
    yield "cumsum-backward", gradient(lambda a: a.cumsum(1)), (x,)
    yield "var-backward", gradient(lambda a: a.var(1)), (x,)


def _order() -> Iterator[Case]:
    x, i = random(4, 9), whole(4, 9)
    yield "sort", lambda a: tuple(a.sort(1)), (x,)
    yield "sort-descending", lambda a: tuple(a.sort(0, descending=True)), (x,)
    yield "sort-stable", lambda a: tuple(a.sort(dim=1, stable=True)), (i,)
    yield "argsort", lambda a: a.argsort(-1), (x,)
    yield "topk", lambda a: tuple(a.topk(3)), (x,)
    yield "topk-smallest", lambda a: tuple(a.topk(2, 0, largest=False)), (x,)
    yield "topk-backward", gradient(lambda a: a.topk(3).values), (x,)
    yield "cummax", lambda a: tuple(a.cummax(1)), (x,)
    yield "cummin", lambda a: tuple(a.cummin(0)), (i,)


def _indexing() -> Iterator[Case]:
    x, table = random(4, 5, 6), random(10, 8)
    rows, cube = torch.tensor([3, 0, -1, 2]), torch.tensor([[0, 2], [1, 1]])
    words = whole(2, 3, low=0)
    where, small = whole(4, 5, 6, low=0, high=5), whole(2, 3, 6, low=0, high=4)
    yield "embedding", F.embedding, (words, table)
    yield "embedding-backward", gradient(F.embedding), (words, table)
    yield "embedding-padding", gradient(lambda w, t: F.embedding(w, t, padding_idx=3)), (words, table)
    yield "index", lambda a, r: a[r], (x, rows)
    yield "index-middle", lambda a, c: a[:, c], (x, cube)
    yield "index-two", lambda a, r: a[r, :, r], (x, rows)
    yield "index-neighbours", lambda a, r: a[:, r, r], (x, rows)
    yield "index-broadcast", lambda a, c, r: a[c, r[:2]], (x, cube, rows.clamp(0))
    yield "index-backward", gradient(lambda a, r: a[r] * 2), (x, rows)
    yield "index_select", lambda a, r: a.index_select(1, r), (x, rows.clamp(0))
    yield "index_put", lambda a, r, b: a.index_put((r,), b), (x, rows[:2], random(5, 6))
    yield "index_put-middle", _put_in_the_middle, (x, torch.tensor([1, 3]), random(4, 2, 6))
    yield "index_put-add", lambda a, r, b: a.index_put((r,), b, accumulate=True), (x, rows, random(4, 5, 6))
    yield "index_put-mask", lambda a, m, v: a.index_put((m,), v), (x, x > 0, torch.tensor(7.0))
    yield "index_add", lambda a, r, b: a.index_add(0, r, b), (x, rows.clamp(0), random(4, 5, 6))
    yield "index_copy", lambda a, r, b: a.index_copy(1, r, b), (x, torch.tensor([4, 1]), random(4, 2, 6))
    yield "gather", lambda a, w: a.gather(1, w), (x, where)
    yield "gather-small", lambda a, w: a.gather(1, w), (x, small)
    yield "gather-backward", gradient(lambda a, w: a.gather(1, w)), (x, where)
    yield "scatter", lambda a, w, s: a.scatter(1, w, s), (x, torch.argsort(random(4, 5, 6), 1), random(4, 5, 6))
    yield "scatter-value", lambda a, w: a.scatter(1, w, 3.0), (x, small)
    yield "scatter-small", lambda a, w, s: a.scatter(1, w, s), (x, torch.argsort(random(2, 3, 6), 1), random(4, 5, 6))
    yield "scatter_add", lambda a, w, s: a.scatter_add(1, w, s), (x, where, random(4, 5, 6))
    yield "scatter_reduce", lambda a, w, s: a.scatter_reduce(1, w, s, "amax"), (x, where, random(4, 5, 6))
    yield "take_along_dim", lambda a, w: torch.take_along_dim(a, w, 1), (x, where)
    yield "one_hot", lambda w: F.one_hot(w, 10), (words,)
    yield "bucketize", torch.bucketize, (x, torch.tensor([-1.0, 0.0, 1.0]))


def _put_in_the_middle(a: torch.Tensor, rows: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made = a.clone()
    made[:, rows] = b
    return made


def _products() -> Iterator[Case]:
    a, b, bias = random(3, 5), random(5, 4), random(4)
    p, q = random(2, 3, 5), random(2, 5, 4)
    half = torch.bfloat16
    yield "mm", torch.mm, (a, b)
    yield "mm-half", torch.mm, (a.to(half), b.to(half))
    yield "mm-backward", gradient(torch.mm), (a, b)
    yield "mv", torch.mv, (a, random(5))
    yield "dot", torch.dot, (random(5), random(5))
    yield "bmm", torch.bmm, (p, q)
    yield "matmul-broadcast", torch.matmul, (random(2, 1, 3, 5), q)
    yield "addmm", lambda t, x, y: torch.addmm(t, x, y, beta=0.5, alpha=2), (bias, a, b)
    yield "addmm-half", torch.addmm, (bias.to(half), a.to(half), b.to(half))
    yield "addmv", torch.addmv, (random(3), a, random(5))
    yield "baddbmm", lambda t, x, y: torch.baddbmm(t, x, y, alpha=0.5), (random(2, 3, 4), p, q)
    yield "linear", F.linear, (p, b.t().contiguous(), bias)
    yield "linear-backward", gradient(F.linear), (p, b.t().contiguous(), bias)
    yield "einsum", lambda x, y: torch.einsum("bij,bjk->bik", x, y), (p, q)
    yield "outer", torch.outer, (random(3), random(4))
    yield "attention", F.scaled_dot_product_attention, tuple(random(2, 3, 6, 8) for _ in range(3))
    yield "attention-causal", _causal, tuple(random(2, 3, 6, 8) for _ in range(3))
    yield "attention-backward", gradient(_causal), tuple(random(2, 3, 6, 8) for _ in range(3))
    yield "attention-groups", _grouped, (random(2, 4, 6, 8), random(2, 2, 6, 8), random(2, 2, 6, 8))


def _causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


_CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 8, 7), (4, 3, 3, 3), {}),
    "stride": ((2, 3, 8, 7), (4, 3, 3, 2), {"stride": 2, "padding": 1}),
    "dilation": ((1, 2, 9, 9), (2, 2, 3, 3), {"dilation": 2, "padding": (2, 1)}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "depthwise": ((1, 4, 7, 7), (4, 1, 3, 3), {"groups": 4, "stride": 2}),
    "leftover": ((1, 2, 8, 8), (3, 2, 3, 3), {"stride": 3}),
    "one": ((2, 3, 5), (4, 3, 3), {"padding": 1}),
    "pointwise": ((2, 3, 4, 4), (5, 3, 1, 1), {}),
}


def _convolved(options: dict[str, Any], rank: int) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: {1: F.conv1d, 2: F.conv2d}[rank](x, w, b, **options)


def _deconvolved(**options: Any) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: F.conv_transpose2d(x, w, b, **options)


def _convolutions() -> Iterator[Case]:
    for name, (shape, kernel, options) in _CONVOLUTIONS.items():
        function = _convolved(options, len(shape) - 2)
        inputs = (random(*shape), random(*kernel), random(kernel[0]))
        yield f"conv-{name}", function, inputs
        yield f"conv-{name}-backward", gradient(function), inputs
    inputs = (random(1, 4, 5, 5), random(4, 3, 3, 3), random(3))
    plain, padded = _deconvolved(), _deconvolved(stride=2, padding=1, output_padding=1)
    yield "deconv", plain, inputs
    yield "deconv-stride", padded, inputs
    yield "deconv-backward", gradient(padded), inputs
    yield "deconv-groups", _deconvolved(groups=2, stride=2), (random(1, 4, 5, 5), random(4, 3, 3, 3), random(6))


def _norms() -> Iterator[Case]:
    x, w, b = random(4, 6), random(6), random(6)
    images, scale, shift = random(3, 4, 5, 5), random(4), random(4)
    mean, var = random(4), random(4, low=0.5)

    def training(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> Any:
        m, v = m.clone(), v.clone()
        return F.batch_norm(x, m, v, w, b, training=True, momentum=0.3), m, v

    def evaluated(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, m.detach(), v.detach(), w, b)

    def evaluated_alone(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, torch.zeros(4), torch.ones(4), w, b)

    yield "layer_norm-affine", lambda x, w, b: F.layer_norm(x, (6,), w, b), (x, w, b)
    yield "layer_norm-affine-backward", gradient(lambda x, w, b: F.layer_norm(x, (6,), w, b)), (x, w, b)
    yield "layer_norm-two", lambda x: F.layer_norm(x, (5, 5)), (images,)
    yield "rms_norm-affine", lambda x, w: F.rms_norm(x, (6,), w, 1e-5), (x, w)
    yield "rms_norm-affine-backward", gradient(lambda x, w: F.rms_norm(x, (6,), w, 1e-5)), (x, w)
    yield "batch_norm-training", training, (images, scale, shift, mean, var)
    yield "batch_norm-eval", evaluated, (images, scale, shift, mean, var)
    yield (
        "batch_norm-backward",
        gradient(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)),
        (images, scale, shift),
    )
    yield "batch_norm-eval-backward", gradient(evaluated_alone), (images, scale, shift)
    yield "group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (images, scale, shift)
    yield "group_norm-backward", gradient(lambda x, w, b: F.group_norm(x, 2, w, b)), (images, scale, shift)
    yield "instance_norm", F.instance_norm, (images,)


def _pooling() -> Iterator[Case]:
    x = random(2, 3, 9, 8)
    for name, options in {
        "2": {"kernel_size": 2},
        "3-2-1": {"kernel_size": 3, "stride": 2, "padding": 1},
        "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    }.items():
        best = lambda a, o=options: F.max_pool2d(a, **o)  # noqa: E731
        yield f"max_pool-{name}", best, (x,)
        yield f"max_pool-{name}-places", lambda a, o=options: F.max_pool2d(a, **o, return_indices=True), (x,)
        yield f"max_pool-{name}-backward", gradient(best), (x,)
        mean = lambda a, o=options: F.avg_pool2d(a, **o)  # noqa: E731
        yield f"avg_pool-{name}", mean, (x,)
        yield f"avg_pool-{name}-backward", gradient(mean), (x,)
    yield "max_pool-dilated", lambda a: F.max_pool2d(a, 2, dilation=2, return_indices=True), (x,)
    yield "avg_pool-inner", lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), (x,)
    yield "max_pool1d", lambda a: F.max_pool1d(a, 2), (x[0],)
    yield "adaptive-1", lambda a: F.adaptive_avg_pool2d(a, 1), (x,)
    for size in ((3, 4), (4, 3), (9, 8)):
        pool = lambda a, s=size: F.adaptive_avg_pool2d(a, s)  # noqa: E731
        yield f"adaptive-{size[0]}-{size[1]}", pool, (x,)
        yield f"adaptive-{size[0]}-{size[1]}-backward", gradient(pool), (x,)
    yield "upsample-nearest", lambda a: F.interpolate(a, scale_factor=2), (x,)
    yield "upsample-bilinear", lambda a: F.interpolate(a, size=(12, 11), mode="bilinear"), (x,)
    yield "upsample-nearest-backward", gradient(lambda a: F.interpolate(a, scale_factor=2)), (x,)


def _losses() -> Iterator[Case]:
    logits, target = random(6, 5), torch.tensor([0, 4, -100, 2, 1, 1])
    x, y = random(4, 3), random(4, 3)
    chances = random(4, 3, low=0.1, high=0.9)
    yield "cross_entropy", F.cross_entropy, (logits, target)
    yield "cross_entropy-backward", gradient(F.cross_entropy), (logits, target)
    smooth = lambda a, t: F.cross_entropy(a, t, label_smoothing=0.1)  # noqa: E731
    yield "cross_entropy-smooth-backward", gradient(smooth), (logits, target)
    yield "nll-sum", lambda a, t: F.nll_loss(a, t, reduction="sum"), (logits, target)
    yield "nll-weights", F.nll_loss, (logits, target, random(5, low=0.5))
    yield "nll-image", F.nll_loss, (random(2, 5, 3, 3), whole(2, 3, 3, low=0, high=5))
    for name, loss in {"mse": F.mse_loss, "l1": F.l1_loss, "smooth": F.smooth_l1_loss, "huber": F.huber_loss}.items():
        yield name, loss, (x, y)
        yield f"{name}-backward", gradient(loss), (x, y)
    yield "bce", F.binary_cross_entropy, (chances, chances.flip(0))
    yield "bce-logits", F.binary_cross_entropy_with_logits, (x, chances)
    yield "bce-logits-backward", gradient(F.binary_cross_entropy_with_logits), (x, chances)
    yield "kl", lambda a, b: F.kl_div(a, b, reduction="batchmean"), (x, chances)
    yield "cosine", F.cosine_similarity, (x, y)


def _spelled_out() -> Iterator[Case]:
    """Operators that PyTorch does not take apart itself."""
    x = random(3, 7, 5)
    gaps = torch.where(x > 1, torch.nan, x)
    gaps[1, :, 2] = torch.nan
    for name, values in {"": x, "-even": x[:, :6], "-nan": gaps, "-whole": whole(3, 8, 2, low=-9, high=9)}.items():
        yield f"median{name}", torch.median, (values,)
        yield f"median-dim{name}", lambda a: torch.median(a, 1)[0], (values,)
    yield "median-places", lambda a: torch.median(a, 1, keepdim=True)[1], (x,)
    yield "median-places-nan", lambda a: torch.median(a, 1)[1], (gaps,)
    yield "nanmedian", torch.nanmedian, (gaps,)
    yield "nanmedian-dim", lambda a: torch.nanmedian(a, -2)[0], (gaps,)
    yield "kthvalue", lambda a: torch.kthvalue(a, 3, 1), (x,)
    yield "kthvalue-nan", lambda a: torch.kthvalue(a, 5, 1)[0], (gaps,)
    table, index, starts = random(9, 4), whole(11, low=0, high=9), torch.tensor([0, 3, 3, 7])
    often = int(index[4])
    for mode in ("sum", "mean", "max"):
        bag = lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m)  # noqa: E731
        yield f"embedding_bag-{mode}", bag, (table, index, starts)
        yield f"embedding_bag-{mode}-backward", gradient(bag), (table, index, starts)
        padded = lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m, padding_idx=often)  # noqa: E731
        yield f"embedding_bag-{mode}-padding", padded, (table, index, starts)
    last = lambda w, i, o: F.embedding_bag(i, w, o, mode="sum", include_last_offset=True)  # noqa: E731
    yield "embedding_bag-last", last, (table, index, torch.tensor([0, 4, 11]))
    weighed = lambda w, i, o, p: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=p)  # noqa: E731
    yield "embedding_bag-weights", weighed, (table, index, starts, random(11))
    yield "bilinear", F.bilinear, (random(6, 3), random(6, 4), random(5, 3, 4), random(5))
    yield "bilinear-backward", gradient(F.bilinear), (random(6, 3), random(6, 4), random(5, 3, 4), random(5))
    for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
        yield f"cdist-{p}", lambda a, b, p=p: torch.cdist(a, b, p), (random(2, 5, 3), random(2, 4, 3))
        yield f"pdist-{p}", lambda a, p=p: F.pdist(a, p), (random(5, 3),)
    yield "masked_scatter", torch.masked_scatter, (x, x > 0, random(110))
    image = random(2, 3, 5, 6, 7)
    for name, options in {
        "2": {"kernel_size": 2},
        "3-2-1": {"kernel_size": 3, "stride": 2, "padding": 1},
        "ceil": {"kernel_size": (3, 2, 3), "stride": 2, "ceil_mode": True},
    }.items():
        yield f"avg_pool3d-{name}", lambda a, o=options: F.avg_pool3d(a, **o), (image,)
        yield f"max_pool3d-{name}", lambda a, o=options: F.max_pool3d(a, **o), (image,)
    inner = {"stride": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True}
    yield "avg_pool3d-inner", lambda a: F.avg_pool3d(a, 3, **inner), (image,)
    yield "avg_pool3d-divisor", lambda a: F.avg_pool3d(a, 2, divisor_override=3), (image,)
    yield "adaptive3d", lambda a: F.adaptive_avg_pool3d(a, (2, 4, 7)), (image,)


def cases() -> list[Case]:
    """All of them, the same in every process."""
    families = (
        _pointwise, _binary, _logic, _shapes, _creation, _reductions, _order, _indexing, _products, _convolutions,
        _norms, _pooling, _losses, _spelled_out,
    )  # fmt: skip
    return drawn(families)


def drawn(families: Sequence[Callable[[], Iterator[Case]]]) -> list[Case]:
    """The cases of some families, with inputs that are the same in every process."""
    state = torch.get_rng_state()
    torch.manual_seed(7)
    made = [case for family in families for case in family()]
    torch.set_rng_state(state)
    return made

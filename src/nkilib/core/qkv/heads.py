"""What happens to heads of queries and keys after the projection: normalisation of each, and rotation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.utils.common_types import NormType
from nkilib.streaming import filled, load, load_repeated, sbuf, size

KINDS = ("q", "k", "v")


@dataclass(frozen=True)
class HeadNorm:
    """RMS norm of each head.

    Attributes:
        gamma: (1, head size) in HBM, or None.
        eps: added to the mean square.
    """

    gamma: Any
    eps: float

    def __call__(self, x: Any) -> Any:
        """Heads ``(rows, heads, head size)`` in float32, normalised in a new tile."""
        rows, heads, head = x.shape
        squares, result = sbuf(x.shape, nl.float32), sbuf(x.shape, nl.float32)
        total, shrink = sbuf((rows, heads), nl.float32), sbuf((rows, heads), nl.float32)
        nisa.activation(dst=squares, op=nl.square, data=x)
        nisa.tensor_reduce(dst=total, op=nl.add, data=squares, axis=(2,))
        bias = filled((rows, 1), nl.float32, self.eps)
        nisa.activation(dst=shrink, op=nl.rsqrt, data=total, scale=1.0 / head, bias=bias)
        nisa.tensor_tensor(dst=result, data1=x, data2=shrink.expand_dim(2).broadcast(2, head), op=nl.multiply)
        if self.gamma is not None:
            gamma = load_repeated(self.gamma, rows).expand_dim(1).broadcast(1, heads)
            nisa.tensor_tensor(dst=result, data1=result, data2=gamma, op=nl.multiply)
        return result


@dataclass
class Rotation:
    """``x * cos + (-x2, x1) * sin`` of each head ``x = (x1, x2)``.

    Attributes:
        cos, sin: ``(tokens, head size)`` in HBM.
    """

    cos: Any
    sin: Any
    _loaded: dict[int, tuple[Any, Any]] = field(init=False, default_factory=dict)

    def __call__(self, x: Any, tokens: slice, into: Any) -> None:
        """Rotate heads ``(rows, heads, head size)`` in float32."""
        _, heads, head = x.shape
        half = head // 2
        cos, sin = (each.expand_dim(1).broadcast(1, heads) for each in self._factors(tokens))
        straight, crossed = sbuf(x.shape, nl.float32), sbuf(x.shape, nl.float32)
        first, second = slice(0, half), slice(half, head)
        nisa.tensor_tensor(dst=straight, data1=x, data2=cos, op=nl.multiply, engine=nisa.engine.gpsimd)
        for here, other in ((first, second), (second, first)):
            nisa.tensor_tensor(dst=crossed[:, :, here], data1=x[:, :, other], data2=sin[:, :, here], op=nl.multiply)
        nisa.tensor_tensor(dst=into, data1=straight, data2=crossed, op=nl.add)

    def _factors(self, tokens: slice) -> tuple[Any, Any]:
        """Cosines, and sines of which those of the first half are negative, loaded once for each tile of tokens."""
        if tokens.start not in self._loaded:
            cos, sin = load(self.cos[tokens]), load(self.sin[tokens])
            signed = sbuf(sin.shape, sin.dtype)
            half = sin.shape[1] // 2
            nisa.tensor_scalar(dst=signed[:, 0:half], data=sin[:, 0:half], op0=nl.multiply, operand0=-1.0)
            nisa.tensor_copy(dst=signed[:, half:], src=sin[:, half:])
            self._loaded[tokens.start] = cos, signed
        return self._loaded[tokens.start]


@dataclass(frozen=True)
class Heads:
    """What is done to which columns of the projection.

    Attributes:
        head: size of a head; 0 if it is not known, and nothing is done.
        ends: for queries, keys and values the column after their last one.
        before, after: norms by kind of head, before and after the rotation.
        rotations: by kind of head.
    """

    head: int
    ends: tuple[int, int, int]
    before: dict[str, HeadNorm]
    after: dict[str, HeadNorm]
    rotations: dict[str, Rotation]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.before or self.after or self.rotations)

    def parts(self, columns: slice) -> list[tuple[str, slice]]:
        """The kinds of heads in some columns, with their columns."""
        found, start = [], columns.start
        for kind, end in zip(KINDS, self.ends, strict=True):
            if start < min(end, columns.stop):
                found.append((kind, slice(start, min(end, columns.stop))))
                start = min(end, columns.stop)
        return found

    def finished(self, tile: Any, tokens: slice, columns: slice, dtype: Any) -> Any:
        """A tile ``(rows, columns)`` in float32 with all heads finished, in a new tile."""
        made = sbuf(tile.shape, dtype)
        for kind, part in self.parts(columns):
            here = slice(part.start - columns.start, part.stop - columns.start)
            shape = (size(part) // self.head, self.head)
            x, into = tile[:, here].reshape_dim(1, shape), made[:, here].reshape_dim(1, shape)
            self._finish(kind, x, tokens, into)
        return made

    def _finish(self, kind: str, x: Any, tokens: slice, into: Any) -> None:
        before, rotation, after = self.before.get(kind), self.rotations.get(kind), self.after.get(kind)
        x = before(x) if before else x
        if rotation:
            turned = sbuf(x.shape, nl.float32) if after else into
            rotation(x, tokens, turned)
            x = turned
        if after:
            x = after(x)
        if after or not rotation:
            nisa.tensor_copy(dst=into, src=x)


def head_norms(config: Any, q_gamma: Any, k_gamma: Any) -> dict[str, HeadNorm]:
    """Norms by kind of head of a `QKNormConfig`, or of none."""
    if config is None:
        return {}
    chosen = {
        "q": (config.q_norm, q_gamma if q_gamma is not None else config.q_gamma_norm_weights),
        "k": (config.k_norm, k_gamma if k_gamma is not None else config.k_gamma_norm_weights),
    }
    return {
        kind: HeadNorm(gamma, config.eps)
        for kind, (norm, gamma) in chosen.items()
        if norm not in (None, NormType.NO_NORM)
    }

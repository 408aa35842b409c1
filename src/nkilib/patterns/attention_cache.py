"""A step of decoding with the update of its cache: attention of one new token over the keys of a cache that it joins.

::

    keys[place], values[place] = k, v
    out = softmax(scale * q @ keys.T) @ values        over the keys that a mask shows

The kernel reads the cache as it was, which it can do while queries are still made, and has the new token as a key of
its own; the old row at its place does not count. It writes both rows behind that, in place if nobody needs the old
cache. A place beyond the cache writes nothing, and then the new token does not count. A row that is overwritten is
read before: NaN in it would be in the result.

What is recognised is an index that is assigned to (``index_copy_`` of PyTorch, ``.at[].set`` of JAX) or a dynamic
update of a slice, in a cache whose last two dimensions are positions and features, and a concatenation of a cache with
the new token, which the model makes beside the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.graph.patterns import Match, NearMiss, Op, Pattern, Rewriter, TensorType, Value
from nkilib.core.attention_tkg import AttnTKGConfig, attention_tkg
from nkilib.errors import KernelLimit
from nkilib.experimental.transformer.block_cache import Places, write_rows
from nkilib.patterns.attention_decode import Decoding, decoding
from nkilib.patterns.matching import same_size
from nkilib.streaming import load, load_transposed, sbuf, spans


@nki.jit
def decode_updating(q: Any, k: Any, v: Any, keys: Any, values: Any, mask: Any, *place: Any, scale: float) -> Any:
    """`attention_tkg` of queries that are scaled here; then the caches, with a row at `place` (1, 1), if it is given.

    Args:
        q: (B, H, 1, d); k and v (B, 1, 1, d) are new, keys and values (B, 1, keys, d) are caches.
        mask: (keys + 1, B, H, 1), the new token's last.
    """
    batch, heads, _, head = q.shape
    cached = keys.shape[2]
    queries = load_transposed(q.reshape((batch * heads, head)))[0]
    scaled = sbuf(tuple(queries.shape), q.dtype)
    nisa.tensor_scalar(dst=scaled, data=queries, op0=nl.multiply, operand0=scale)
    sizes = {"bs": batch, "q_head": heads, "s_active": 1, "d_head": head}
    cfg = AttnTKGConfig(**sizes, curr_sprior=cached + 1, full_sprior=cached, tp_k_prior=True, qk_in_sb=True)
    out = nl.ndarray((batch, heads, head, 1), dtype=q.dtype, buffer=nl.shared_hbm)
    new = load_transposed(k.reshape((batch, head)))[0]
    attention_tkg(scaled, new, v, keys, values, mask, out, cfg, None)
    if not place:
        return out
    for some in spans(batch, int(nl.tile_size.pmax)):
        rows = Places(place[0].broadcast(0, some.stop - some.start), some.stop - some.start, 1, cached).rows()
        for cache, made in ((keys, k), (values, v)):
            write_rows(cache[some], load(made[some].reshape((some.stop - some.start, head))), rows)
    return out, keys, values


@dataclass(frozen=True, slots=True)
class _Update:
    """A cache that a new token joins.

    Attributes:
        cache: as it was, ``(..., keys, d)``.
        new: the token's row, as large as the cache without its keys.
        made: the cache with it.
        axis: the dimension of the cache whose place it goes to.
        place: where it goes, an integer; None: behind all others.
        clipped: whether a place beyond the cache means its first or last row; otherwise none.
    """

    cache: Value
    new: Value
    made: Value
    axis: int
    place: Value | None = None
    clipped: bool = False

    def row(self, r: Rewriter) -> Value | None:
        """The place, where one outside of the cache means no row."""
        if self.place is None or not self.clipped:
            return None if self.place is None else r.reshape(self.place, ())
        zero, last = (r.full(limit, self.place.type) for limit in (0, self.cache.type.shape[self.axis] - 1))
        return r.same("minimum", r.same("maximum", self.place, zero), last)


def match(r: Rewriter, op: Op) -> Match | None:
    """The attention whose last product an operation is, over keys and values that one new token has just joined."""
    found = decoding(r, op)
    updates = [] if found is None else [_update(r, value) for value in (found.k, found.v)]
    if found is None or not updates or updates[0] is None or updates[1] is None:
        return None
    keys, values = updates[0], updates[1]
    _check(found, keys, values)
    place = keys.row(r)
    mask = _mask(r, found, place)
    batch, count, cached, head = found.batch, found.count, keys.cache.type.shape[-2], found.sizes["d"]
    tensors = [
        r.reshape(found.queries(r), (batch, count, 1, head)),
        *(r.reshape(each.new, (batch, 1, 1, head)) for each in (keys, values)),
        *(r.reshape(each.cache, (batch, 1, cached, head)) for each in (keys, values)),
        mask,
    ]
    outputs = op.results
    if place is not None:
        tensors.append(r.reshape(place, (1, 1)))
        outputs = (*op.results, keys.made, values.made)

    def finish(r: Rewriter, made: Sequence[Value]) -> Sequence[Value]:
        caches = (r.reshape(value, each.type.shape) for value, each in zip(made[1:], outputs[1:], strict=True))
        return *found.finished(r, made[0]), *caches

    return Match(tuple(tensors), outputs, {"scale": found.scale}, finish)


def _check(found: Decoding, keys: _Update, values: _Update) -> None:
    """Raise NearMiss for caches that the kernel does not update."""
    shared = "".join(found.shared)
    rows = all(each.axis == len(each.cache.type.shape) - 2 for each in (keys, values))
    if not rows or (found.dims["k"], found.dims["v"]) != (f"{shared}kd", f"{shared}kf"):
        raise NearMiss("its cache has heads or features before positions, the kernel updates rows of heads")
    if (keys.place, keys.clipped) != (values.place, values.clipped):
        raise NearMiss("keys and values go to different places, the kernel writes both to one")
    if found.sizes["d"] != found.sizes["f"]:
        raise NearMiss(f"keys of {found.sizes['d']} and values of {found.sizes['f']} features, the kernel takes equal")
    kinds = {value.type.dtype.name for each in (keys, values) for value in (each.cache, each.new)} | {
        found.q.type.dtype.name
    }
    if len(kinds) > 1:
        raise NearMiss(f"queries and caches are {' and '.join(sorted(kinds))}, the kernel takes one dtype")


# ------------------------------------------------------------------------------------------------------------- updates


def _update(r: Rewriter, value: Value) -> _Update | None:
    """The update that makes a value, at one place of one of its dimensions."""
    while (op := r.maker(value, "reshape")) is not None:
        value = op.operands[0]
    op = r.maker(value)
    if op is None:
        return None
    rule = {"scatter": _scattered, "dynamic_update_slice": _sliced, "concatenate": _behind}.get(op.name)
    found = None if rule is None else rule(r, op)
    if found is None or found.new.type.size * found.cache.type.shape[found.axis] != found.cache.type.size:
        return None
    return found


def _scattered(r: Rewriter, op: Op) -> _Update | None:
    """One index of one dimension, where the cache is replaced."""
    cache, indices, new = op.operands[:3] if len(op.operands) == 3 else (None, None, None)
    if cache is None or indices is None or new is None or indices.type.size != 1:
        return None
    inside = op.regions[0]
    replaces = not inside.ops and inside.results[0] is inside.arguments[1]
    axes = op.attributes["scatter_dims_to_operand_dims"]
    return _Update(cache, new, op.results[0], axes[0], same_size(r, indices)) if replaces and len(axes) == 1 else None


def _sliced(_: Rewriter, op: Op) -> _Update | None:
    """A slice that is whole but for one dimension begins at 0 in the others, whatever the model says."""
    cache, new, *starts = op.operands
    axes = [n for n, sizes in enumerate(zip(cache.type.shape, new.type.shape, strict=True)) if len(set(sizes)) > 1]
    return _Update(cache, new, op.results[0], axes[0], starts[axes[0]], clipped=True) if len(axes) == 1 else None


def _behind(_: Rewriter, op: Op) -> _Update | None:
    """A concatenation of a cache and one row."""
    return _Update(*op.operands, op.results[0], op.attributes["dimension"]) if len(op.operands) == 2 else None


# --------------------------------------------------------------------------------------------------------------- masks


def _mask(r: Rewriter, found: Decoding, place: Value | None) -> Value:
    """Which keys of the old cache count, and whether the new token does: bytes (keys + 1, B, H, 1)."""
    narrow, letters = found.seen(r)
    count = found.sizes["k"]
    if place is not None:
        narrow, letters = _moved(r, narrow, letters, place, count), ["k", *(each for each in letters if each != "k")]
        count += 1
    wanted = ["k", *found.shared, *found.heads]
    sizes = {**found.sizes, "k": count}
    order = [letter for letter in wanted if letter in letters]
    turned = r.transpose(narrow, [letters.index(letter) for letter in order])
    wide = r.broadcast(turned, [sizes[letter] for letter in wanted], [wanted.index(letter) for letter in order])
    return r.reshape(wide, (count, found.batch, found.count, 1))


def _moved(r: Rewriter, seen: Value, letters: Sequence[str], place: Value, count: int) -> Value:
    """What counts of old keys, whose row at `place` does not, and as one more row whether that one counts."""
    others = [letter for letter in letters if letter != "k"]
    sizes = dict(zip(letters, seen.type.shape, strict=True))
    shape = [count, *(sizes[letter] for letter in others)]
    order = [letter for letter in ("k", *others) if letter in letters]
    turned = r.transpose(seen, [letters.index(letter) for letter in order])
    every = r.broadcast(turned, shape, [["k", *others].index(letter) for letter in order])
    numbers = r.constant(np.arange(count, dtype=place.type.dtype.numpy))
    here = r.one(
        "compare",
        [numbers, r.broadcast(place, (count,), ())],
        TensorType((count,), nl.bool_),
        comparison_direction="EQ",
        compare_type="SIGNED",
    )
    at = r.broadcast(here, shape, (0,))
    old = r.same("and", every, r.same("not", at))
    new = r.reduce(r.same("and", every, at), (0,), "or", False)
    joined = TensorType((count + 1, *shape[1:]), nl.bool_)
    return r.one("concatenate", [old, r.reshape(new, (1, *shape[1:]))], joined, dimension=0)


ATTENTION_CACHE = Pattern("attention_cache", match, decode_updating, choose="faster", refuses=(KernelLimit,))

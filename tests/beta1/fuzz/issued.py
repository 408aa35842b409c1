"""A program as a kernel of the first NKI."""

from __future__ import annotations

from typing import Any

import nki.beta1.isa as nisa
import nki.beta1.language as nl
from nki.beta1.decorators import jit
from tests.beta1.fuzz.programs import RELATIONS, Affine, Condition, Shape, Step, program

BEFORE = -77.0


@jit
def kernel(one, two, three, rows, seed):
    made: list[Any] = []
    results = []
    for step in program(seed):
        made.append(_STEPS[step.kind](step, [made[at] for at in step.of], (one, two, three, rows)))
        out = nl.ndarray(tuple(made[-1].shape), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, BEFORE)
        nl.store(out, made[-1])
        results.append(out)
    return tuple(results)


def _axis(shape: Shape, axis: int) -> Any:
    return nl.arange(shape[axis])[tuple(slice(None) if at == axis else None for at in range(len(shape)))]


def _index(index: Affine, shape: Shape) -> Any:
    found: Any = index.const
    for axis, step in enumerate(index.steps):
        if step:
            found = found + step * _axis(shape, axis)
    return found


def _indices(index: tuple[Affine, ...], shape: Shape, given: tuple[int, ...] = ()) -> tuple[Any, ...]:
    """All expressions; axes that none of them has are put in by adding nothing times their positions.

    Args:
        given: axes that another index has.
    """
    found = [_index(each, shape) for each in index]
    for axis in range(len(shape)):
        if axis not in given and not any(each.steps[axis] for each in index):
            found[-1] = found[-1] + 0 * _axis(shape, axis)
    return tuple(found)


def _mask(mask: tuple[Condition, ...], shape: Shape) -> Any:
    found: Any = None
    for each in mask:
        one = RELATIONS[each.relation](_index(each.index, shape))
        found = one if found is None else found & one
    return found


def _of(step: Step) -> Any:
    return _mask(step.mask, step.shape)


def _gather(step: Step, given: list[Any], sources: tuple[Any, ...]) -> Any:
    source, column = step.more
    chosen = nl.load(sources[-1][nl.arange(step.shape[0])[:, None], column + nl.arange(1)[None, :]])
    rows = chosen[_axis(step.shape, 0), 0]
    return nl.load(sources[source][(rows, *_indices(step.index, step.shape, (0,)))], mask=_of(step))


def _assign(step: Step, given: list[Any], sources: Any) -> Any:
    value, (blocks, block, how, before) = given[0], step.more
    shape, key = tuple(value.shape), _indices(step.index, tuple(value.shape))
    tile = nl.full((*blocks, nl.par_dim(step.shape[0]), *step.shape[1:]), before, dtype=nl.float32, buffer=nl.sbuf)
    mask, key = _mask(step.mask, shape), (*block, *key)
    if how == "computed":
        tile[key] = nl.add(value, 2.0, mask=mask)
    elif how == "set":
        tile[key] = nl.copy(value, mask=mask)
    elif how == "masked":
        tile[key] = value if mask is None else value[mask]
    elif how == "add":
        tile[key] += nl.copy(value, mask=mask)
    elif how == "subtract":
        tile[key] -= nl.copy(value, mask=mask)
    else:
        tile[key] *= nl.copy(value, mask=mask)
    return tile[block] if blocks else tile


def _in_zeros(value: Any) -> Any:
    """A value in a tile of zeros: products refuse masks that join axes."""
    tile = nl.zeros(tuple(value.shape), dtype=nl.float32, buffer=nl.sbuf)
    tile[...] = value
    return tile


def _slices(step: Step, given: list[Any], sources: Any) -> Any:
    return given[0][tuple(_slice(*part) for part in step.index)]


def _slice(start: int, count: int, by: int, dynamic: bool) -> Any:
    if dynamic:
        return nl.ds(start, count)
    end = start + by * (count - 1) + (1 if by > 0 else -1)
    return slice(start, None if end < 0 else end, by)


def _range_select(step: Step, given: list[Any], sources: tuple[Any, ...]) -> Any:
    low, high, start = step.more
    bounds = nl.load(sources[-1][nl.arange(step.shape[0])[:, None], nl.arange(2)[None, :]], dtype=nl.float32)
    return nisa.range_select(
        on_true_tile=given[0],
        comp_op0=getattr(nl, low),
        comp_op1=getattr(nl, high),
        bound0=bounds[:, 0:1],
        bound1=bounds[:, 1:2],
        range_start=start,
        mask=_of(step),
    )


_STEPS = {
    "load": lambda s, given, sources: nl.load(sources[s.more[0]][_indices(s.index, s.shape)], mask=_of(s)),
    "load_transpose": lambda s, given, sources: nl.load_transpose2d(
        sources[s.more[0]][_indices(s.index, s.shape)], mask=_of(s)
    ),
    "gather": _gather,
    "binary": lambda s, given, sources: getattr(nl, s.more[0])(*given, mask=_of(s)),
    "scalar": lambda s, given, sources: getattr(nl, s.more[0])(given[0], float(s.more[1]), mask=_of(s)),
    "copy": lambda s, given, sources: nl.copy(given[0], mask=_of(s)),
    "reduce": lambda s, given, sources: getattr(nl, s.more[0])(given[0], axis=s.more[1], keepdims=True, mask=_of(s)),
    "assign": _assign,
    "slices": _slices,
    "view": lambda s, given, sources: given[0][_indices(s.index, s.shape)],
    "transpose": lambda s, given, sources: nl.transpose(given[0], mask=_of(s)),
    "product": lambda s, given, sources: nl.matmul(*[_in_zeros(each) for each in given], transpose_x=True),
    "where": lambda s, given, sources: nl.where(nl.greater(given[0], 0.0), given[1], given[2], mask=_of(s)),
    "affine_select": lambda s, given, sources: nisa.affine_select(
        pred=_mask((s.more[0],), s.shape), on_true_tile=given[0], on_false_value=float(s.more[1]), mask=_of(s)
    ),
    "range_select": _range_select,
    "iota": lambda s, given, sources: nl.copy(
        nisa.iota(_indices(s.index, s.shape)[0], dtype=nl.int32, mask=_of(s)), dtype=nl.float32
    ),
}

"""Conditions of two axes and more: written by a predicate, because what is true is no box."""

from __future__ import annotations

from collections.abc import Sequence

import nki.isa as nisa
from nki.beta1.tensors.mask import Box, Comparison
from nki.beta1.tracing.operands import changed
from nki.core.dtypes import float32, uint8
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.language.memory import filled_tile, new_tile

COMPARED = {">=": alu.GREATER_EQUAL, "==": alu.EQUAL, "!=": alu.NOT_EQUAL}


def copy_where(destination: NkiTensor, source: NkiTensor, box: Box, conditions: Sequence[Comparison]) -> None:
    """Copy a tile to where all conditions hold; elsewhere the destination stays."""
    value = source
    if source.dtype != destination.dtype:
        value = new_tile(source.shape, destination.dtype)
        nisa.tensor_copy(dst=value, src=source)
    chosen = predicate(box, conditions, destination.shape)
    changed(destination, lambda dst: nisa.tensor_copy_predicated(dst=dst, src=value, predicate=chosen))


def predicate(box: Box, conditions: Sequence[Comparison], shape: tuple[int, ...]) -> NkiTensor:
    """A tile of ones and zeros: where all conditions hold in a box."""
    sizes = tuple(high - low for low, high in box)
    ones = filled_tile(sizes, float32, 1.0)
    for each in conditions:
        steps = (0,) * (len(sizes) - len(each.steps)) + each.steps[-len(sizes) :]
        offset = each.const + sum(step * low for step, (low, _) in zip(steps, box, strict=True))
        chosen = new_tile(sizes, float32)
        nisa.affine_select(
            dst=chosen,
            pattern=[[step, size] for step, size in zip(steps[1:], sizes[1:], strict=True)],
            channel_multiplier=steps[0],
            on_true_tile=ones,
            on_false_value=0.0,
            cmp_op=COMPARED[each.relation],
            offset=offset,
        )
        ones = chosen
    narrow = new_tile(sizes, uint8)
    nisa.tensor_copy(dst=narrow, src=ones)
    return narrow if sizes == shape else narrow.reshape(shape)

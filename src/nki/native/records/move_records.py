"""Records of copies, transposes and products, executed by the functions of `nki.native.primitives`."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from functools import partial
from typing import TypeVar

from nki.core.tensor import View
from nki.native.cpu_features import dots_pay
from nki.native.operand_layout import HEADER, SLOT
from nki.native.primitives.copy import copy_text
from nki.native.primitives.identity import identity_text
from nki.native.primitives.matmul import (
    ADD,
    FINDS,
    FLOATS,
    KEEPS,
    LOOSE,
    MOST_PAIRED_ROWS,
    PAIRED,
    PAIRS,
    PANELS_SHIFT,
    ROWS_MASK,
    ROWS_SHIFT,
    matmul_text,
)
from nki.native.primitives.matmul_mx import matmul_mx_text
from nki.native.primitives.scratch import LEFT_ROOM, MOST_COLUMNS, MOST_ROWS, RIGHT_ROOM, ROWS_ROOM
from nki.native.primitives.transpose import transpose_text
from nki.native.records.moves import Copy, Move, Multiplied, Product, Transposed, depth_of, operands_of
from nki.native.records.templates import Patch, Template, Unfit, copy_words, finished, header, row_slot, rows_slot

Words = TypeVar("Words", bound=MutableSequence[int])

_LINK_WORDS = 2
"""The immediates of a product with one link: flags, and K; or the number of quadrants."""

_TO = {"float32": "", "bfloat16": "_to_bfloat16"}


def move_template(move: Move, fast: bool) -> Template:
    """The record of a move; with `fast`, dot products may have other bits than multiply-adds in the defined order."""
    match move:
        case Copy():
            return _copy(move)
        case Transposed():
            return _transposed(move)
        case Multiplied():
            return _by_identity(move)
        case Product():
            return _product(move, fast)


def with_mode(words: Words, adds: bool) -> Words:
    """The record of a product that adds to its destination, or overwrites it."""
    words[-_LINK_WORDS] = words[-_LINK_WORDS] & ~ADD | int(adds)
    return words


def moving_key(words: Sequence[int]) -> tuple[int, ...]:
    """What tells the packed moving operand of a product from others: function, slot, rows in a partition, and K."""
    flags, depth = words[-_LINK_WORDS:]
    start = HEADER + 2 * SLOT
    return (words[0], *words[start : start + SLOT], flags & ROWS_MASK, depth)


def panel_bytes(words: Sequence[int]) -> int:
    """Enough for the packed moving operand of a product: a float32 for each column and k; pairs need half, and one."""
    columns = -(-words[3] // FLOATS.columns) * FLOATS.columns
    return 4 * columns * (words[-1] + 1)


def at_panels(words: Words, offset: int, there: bool) -> Words:
    """The record of a product that has its moving operand packed at this offset, or finds it there."""
    words[-_LINK_WORDS] |= offset << PANELS_SHIFT | (KEEPS | FINDS if there else KEEPS)
    return words


def _copy(move: Copy) -> Template:
    words, patches = copy_words(move.dst, move.src, move.axes)
    size = move.dst.dtype.itemsize
    name = f"copy{size}"
    return Template(name, partial(copy_text, name, size), finished(words), patches)


def _transposed(move: Transposed) -> Template:
    size = move.dst.dtype.itemsize
    name = f"transpose{size}"
    words, patches = _slots(header(move.dst.shape[0], move.dst.free_size), move.dst, move.src)
    return Template(name, partial(transpose_text, name, size), finished(words), patches)


def _by_identity(move: Multiplied) -> Template:
    dtype, result = move.src.dtype.name, move.dst.dtype.name
    name = f"identity_{dtype}{_TO[result]}"
    words, patches = _slots(header(move.dst.shape[0], move.dst.free_size), move.dst, move.src)
    return Template(name, partial(identity_text, name, dtype, result), finished(words), patches)


def _product(move: Product, fast: bool) -> Template:
    if not _fits(move):
        raise Unfit
    if move.quadrants:
        return _microscaled(move)
    stationary, moving = move.stationary.dtype.name, move.moving.dtype.name
    pairs = stationary in PAIRED and moving in PAIRED and move.rows <= MOST_PAIRED_ROWS and dots_pay()
    result = move.dst.dtype.name
    name = f"matmul_{stationary}_{moving}{'_pairs' if pairs else ''}{_TO[result]}"
    words, patches = _slots(header(move.dst.shape[0], move.dst.free_size), move.dst)
    for factor in (move.stationary, move.moving):
        slot, patch = row_slot(factor, len(words)) if move.rows == 1 else rows_slot(factor, len(words))
        words, patches = words + slot, (*patches, patch)
    flags = (move.rows << ROWS_SHIFT if move.rows > 1 else 0) | (LOOSE if fast else 0)
    words += [flags, move.stationary.shape[0] * move.rows]
    text = partial(matmul_text, name, stationary, moving, PAIRS if pairs else FLOATS, result)
    return Template(name, text, finished(words), patches)


def _fits(move: Product) -> bool:
    """Whether the scratch memory is large enough, as it is for all that rules allow."""
    rows, columns = move.dst.shape[0], move.dst.free_size
    if rows > MOST_ROWS or columns > MOST_COLUMNS:
        return False
    depth = depth_of(move) + 1
    panels = 4 * depth * (rows + FLOATS.rows) <= LEFT_ROOM and 4 * depth * FLOATS.columns <= RIGHT_ROOM
    widest = max(rows * move.stationary.dtype.itemsize, columns * move.moving.dtype.itemsize)
    return bool(move.quadrants) or (panels and depth * widest <= ROWS_ROOM)


def _microscaled(move: Product) -> Template:
    stationary, moving = move.stationary.dtype.name, move.moving.dtype.name
    result = move.dst.dtype.name
    name = f"matmul_mx_{stationary}_{moving}{_TO[result]}"
    words, patches = _slots(header(move.dst.shape[0], move.dst.free_size), *operands_of(move))
    words += [0, len(move.quadrants)]
    return Template(name, partial(matmul_mx_text, name, stationary, moving, result), finished(words), patches)


def _slots(words: list[int], *views: View) -> tuple[list[int], tuple[Patch, ...]]:
    patches = []
    for view in views:
        slot, patch = row_slot(view, len(words))
        words += slot
        patches.append(patch)
    return words, tuple(patches)

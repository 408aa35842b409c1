"""Calls of ``nki.isa``: today they write to a tile that they are given."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import libcst as cst

import nki.beta1.isa as old_isa
import nki.isa as nisa
from nki.core.tensor import MemoryRegion
from nki.tools.migrate.facts import Fact
from nki.tools.migrate.masks import Bounds
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.operators import operator
from nki.tools.migrate.rewriting.regions import Cuts, only
from nki.tools.migrate.rewriting.results import (
    allocate,
    dtype_of_result,
    operand_cuts,
    product_cuts,
    result_cuts,
    result_shape,
    tiles_of,
)
from nki.tools.migrate.rewriting.tiles import tile
from nki.tools.migrate.rewriting.views import pattern_of

GIVEN = ("dma_copy", "tensor_copy_predicated", "tensor_copy_dynamic_dst", "nc_stream_shuffle", "select_reduce")
"""Instructions whose destination is an argument already."""
_RENAMED = {"tensor_copy_dynamic_src": "tensor_copy", "tensor_copy_dynamic_dst": "tensor_copy"}
_PERF_MODES = {'"double_row"': "double_row", '"double_row_gen3"': "double_row", '"none"': "none"}
_OPERATORS = ("op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1")


@dataclass
class Instruction:
    """A call of an instruction.

    Attributes:
        name: of the instruction.
        given: its arguments but mask, dtype and shape.
        mask: what its mask leaves.
        cuts: what is left of its operands.
        texts: its arguments today, but the destination.
        dtype, shape: of the result, where they are given.
    """

    name: str
    given: dict[str, cst.BaseExpression]
    mask: Bounds
    cuts: Cuts
    texts: list[str]
    dtype: cst.BaseExpression | None
    shape: cst.BaseExpression | None

    def emit(self, c: Context, dst: str) -> None:
        """Put it in front of the statement."""
        texts = [f"dst={dst}", *self.texts]
        c.emit(f"{c.nisa(self.name)}({', '.join(texts)})")


def instruction(c: Context, call: cst.Call, name: str | None = None) -> str:
    """Emit an instruction, and the tile that it writes to; returns the tile.

    Args:
        name: of the tile, if it has one.
    """
    issued = _read(c, call)
    if "dst" in issued.given:
        dst = tile(c, issued.given["dst"], issued.cuts)
        issued.emit(c, dst)
        return dst
    result = _result(c, call)
    sizes = result_shape(c, issued.name, issued.given, issued.cuts, result, issued.shape)
    dtype = c.dtype(issued.dtype) if issued.dtype is not None else dtype_of_result(c, issued.given, result)
    made = allocate(c, name, result, sizes, dtype)
    issued.emit(c, made)
    left = {key: cut for key, cut in result_cuts(issued.name, issued.cuts).items() if key >= -len(result.shape)}
    if left:
        c.extents[made] = left
    return made


def instruction_into(c: Context, call: cst.Call, target: cst.Subscript) -> None:
    """Emit an instruction whose result is assigned to a part of a tile."""
    issued = _read(c, call)
    result, place = _result(c, call), c.facts.known(target)
    if issued.name == "nc_matmul":
        issued.texts.append("accumulate=False")
    cuts = result_cuts(issued.name, issued.cuts)
    if issued.name == "nc_matmul":
        cuts = {**product_cuts(c, issued.given["stationary"], issued.given["moving"]), **cuts}
    dst = tile(c, target, cuts)
    rounds = issued.dtype is not None or issued.name == "nc_transpose"  # to a dtype that is not that of the place
    twice = rounds and {each.dtype for each in c.facts.of(call)} != {each.dtype for each in c.facts.of(target)}
    moved = result.buffer == "psum" and place.buffer != "psum"
    if not (twice or moved or _squeezed(result) != _squeezed(place)):
        issued.emit(c, dst)
        return
    sizes = result_shape(c, issued.name, issued.given, issued.cuts, result, None)
    made = allocate(c, None, result, sizes, dtype_of_result(c, issued.given, result))
    issued.emit(c, made)
    c.emit(f"{c.nisa('tensor_copy')}(dst={dst}, src={made})")


def _squeezed(fact: Fact) -> tuple[int, ...]:
    return tuple(size for size in fact.shape if size != 1)


def _result(c: Context, call: cst.Call) -> Fact:
    result = c.facts.one(call)
    if result is None or result.kind != "tensor":
        raise Unmigrated("the kernel was not executed up to here, so its result has no known shape")
    return result


def _read(c: Context, call: cst.Call) -> Instruction:
    """A call with its arguments as today's."""
    written = c.names.canonical(call.func).removeprefix("nisa.")
    name = _RENAMED.get(written, written)
    old, new = getattr(old_isa, written, None), getattr(nisa, name, None)
    if not inspect.isfunction(old) or new is None:
        raise Unmigrated(f"nisa.{written} has no counterpart of that name")
    given = bound(c, call, old)
    mask = c.masks.read(given.pop("mask", None))
    dtype, shape = given.pop("dtype", None), given.pop("shape", None)
    texts = _PATTERNS[name](c, given) if name in _PATTERNS else []
    for hint in ("name", "buffer"):
        given.pop(hint, None)
    if name == "dma_copy" and "dst_rmw_op" in given:
        raise Unmigrated("nisa.dma_copy with dst_rmw_op is no instruction of its own here")
    for key in given:
        if key not in inspect.signature(new).parameters:
            raise Unmigrated(f"nisa.{name} has no argument {key} any more")
    cuts = operand_cuts(c, name, given, mask)
    return Instruction(name, given, mask, cuts, texts + _arguments(c, name, given, cuts), dtype, shape)


def _arguments(c: Context, name: str, given: dict[str, cst.BaseExpression], cuts: Cuts) -> list[str]:
    """The arguments of an instruction but its destination."""
    texts = [
        f"{key}={_argument(c, name, key, node, _own_cuts(c, given, node, cuts))}"
        for key, node in given.items()
        if key != "dst"
    ]
    texts = [text for text in texts if not text.endswith("unknown_engine")]
    if name == "range_select" and "reduce_cmd" not in given:
        texts.append(f"reduce_cmd={c.nisa('reduce_cmd.idle')}")
    return texts


def _own_cuts(c: Context, given: dict[str, cst.BaseExpression], node: cst.BaseExpression, cuts: Cuts) -> Cuts:
    """The cuts of one operand: a free axis that is shorter than those of others has another meaning."""
    fact = c.facts.one(node)
    if fact is None or fact.kind != "tensor" or not cuts:
        return cuts
    shapes = [c.facts.known(each).shape for each in tiles_of(c, given)]
    longest = {key: max((shape[key] for shape in shapes if len(shape) >= -key), default=0) for key in cuts if key}
    return {
        key: cut
        for key, cut in cuts.items()
        if not key or (len(fact.shape) >= -key and fact.shape[key] == longest[key])
    }


def _argument(c: Context, name: str, key: str, node: cst.BaseExpression, cuts: Cuts) -> str:
    if key in _OPERATORS:
        return "None" if c.one_line(node) == "None" else operator(c, node)
    if c.facts.kind(node) == "tensor":
        text = read(c, name, key, node, cuts)
        is_bool = key == "predicate" and c.facts.known(node).dtype.startswith("bool")
        return f"{text}.view({c.nl('uint8')})" if is_bool else text
    text = c.code(node)
    if key == "perf_mode" and text.replace("'", '"') in _PERF_MODES:
        return c.nisa(f"matmul_perf_mode.{_PERF_MODES[text.replace(chr(39), chr(34))]}")
    return text


def read(c: Context, name: str, key: str, node: cst.BaseExpression, cuts: Cuts) -> str:
    """A tile as an operand of an instruction; a copy of one that is in a memory which it does not read."""
    text = tile(c, node, only(cuts, 0) if name == "nc_matmul" and key == "stationary" else cuts)
    return text if _reads(name, key, c.facts.known(node).buffer) else f"{c.nl('copy')}({text})"


def _reads(name: str, key: str, buffer: str) -> bool:
    """Whether an instruction takes an operand from a memory; what is in PSUM may have to be in SBUF."""
    declared = getattr(nisa, name).operands[key]
    return buffer != "psum" or not declared.regions or MemoryRegion.psum in declared.regions


def _iota(c: Context, given: dict[str, cst.BaseExpression]) -> list[str]:
    found = c.indices.read(given.pop("expr"))
    if found is None or not found.axes:
        raise Unmigrated("nisa.iota of something else than a sum of multiples of nl.arange")
    return pattern_of(found)


def _affine_select(c: Context, given: dict[str, cst.BaseExpression]) -> list[str]:
    expression, relation = c.masks.relation(given.pop("pred"))
    return [*pattern_of(expression), f"cmp_op={c.nl(relation)}"]


_PATTERNS = {"iota": _iota, "affine_select": _affine_select}
"""Instructions that take an index expression, for which a pattern stands today; it is taken out of the arguments."""

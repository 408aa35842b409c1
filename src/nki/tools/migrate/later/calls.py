"""Calls of instructions: today's arguments, and a destination where there was none."""

from __future__ import annotations

import inspect
from typing import Any

import libcst as cst

import nki.isa as nisa
from nki.spec.instruction import Instruction
from nki.tools.migrate.later.keywords import Call, changed
from nki.tools.migrate.nodes import all_of
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.results import allocate, dtype_of_result, result_shape


def instruction_of(name: str) -> Instruction[Any] | None:
    """The instruction of that name."""
    found = getattr(nisa, name, None) if name in nisa.__all__ else None
    return found if isinstance(found, Instruction) else None


def rewritten_call(c: Context, old: cst.Call, new: cst.Call, name: str, target: str) -> cst.BaseExpression:
    """A call of an instruction as it is written today.

    Args:
        old: the call as it stands in the file, for what is known of it.
        new: the call whose arguments are today's.
        name: of the instruction.
        target: the name that its result is assigned to, or "".
    """
    instruction = instruction_of(name)
    if instruction is None or any(arg.star for arg in old.args):
        return new
    result = c.facts.one(old)
    implicit = result is not None and result.kind == "tensor"
    names = _parameters(c, name, instruction, old, implicit)
    call = Call(name, dict(zip(names, (arg.value for arg in old.args), strict=False)))
    call.texts = dict(zip(names, (c.one_line(arg.value) for arg in new.args), strict=False))
    before = (call.name, dict(call.texts))
    if implicit:
        dtype = call.texts.pop("dtype", "")
        return _with_destination(c, call, old, dtype, target)
    _source_in_psum(c, call)
    changed(c, call)
    if (call.name, call.texts) == before and not _moved(old, names, instruction):
        return new
    return _made(c, call)


def _parameters(c: Context, name: str, instruction: Any, old: cst.Call, implicit: bool) -> list[str]:
    """The names of the arguments of a call."""
    order = list(inspect.signature(instruction).parameters)[int(implicit) :]
    order = _ORDERS[name](c, old, order) if name in _ORDERS and not implicit else order
    found = []
    for at, arg in enumerate(old.args):
        if arg.keyword is None and at >= len(order):
            raise Unmigrated(f"nisa.{name} has no argument {at + 1}")
        found.append(arg.keyword.value if arg.keyword is not None else order[at])
    return found


def _affine_select(c: Context, old: cst.Call, order: list[str]) -> list[str]:
    """Until NKI 0.3 the offset stood behind the pattern."""
    plain = [arg.value for arg in old.args if arg.keyword is None]
    if len(plain) > 4 and c.facts.kind(plain[4]) == "tensor":
        return ["dst", "pattern", "offset", *(key for key in order[2:] if key != "offset")]
    return order


def _dma_compute(c: Context, old: cst.Call, order: list[str]) -> list[str]:
    """Until NKI 0.3 the scales stood before the operation."""
    plain = [arg.value for arg in old.args if arg.keyword is None]
    if len(plain) > 2 and isinstance(plain[2], cst.List | cst.Tuple):
        return ["dst", "srcs", "scales", "reduce_op", *order[4:]]
    return order


_ORDERS = {"affine_select": _affine_select, "dma_compute": _dma_compute}


def _moved(old: cst.Call, names: list[str], instruction: Any) -> bool:
    """Whether positional arguments stand somewhere else today."""
    order = list(inspect.signature(instruction).parameters)
    plain = [name for name, arg in zip(names, old.args, strict=True) if arg.keyword is None]
    return plain != order[: len(plain)]


def _source_in_psum(c: Context, call: Call) -> None:
    """Since NKI 0.3 DMA reads no PSUM: what is there is copied to SBUF first."""
    source = c.facts.one(call.old["src"]) if call.name == "dma_copy" and "src" in call.old else None
    if source is None or source.buffer != "psum":
        return
    made, text = c.fresh("tile"), call.texts["src"]
    c.emit(f"{made} = {c.nl('ndarray')}({text}.shape, dtype={text}.dtype, buffer={c.nl('sbuf')})")
    c.emit(f"{c.nisa('tensor_copy')}(dst={made}, src={text})")
    call.texts["src"] = made


def _with_destination(c: Context, call: Call, old: cst.Call, dtype: str, target: str) -> cst.BaseExpression:
    """Emit the instruction and the tile that it writes to; returns the tile."""
    result = c.facts.known(old)
    changed(c, call)
    reads = target and any(target == name.value for arg in old.args for name in all_of(arg.value, cst.Name))
    made = target if target and not reads else c.fresh("tile")
    sizes = result_shape(c, call.name, call.old, {}, result, None)
    allocate(c, made, result, sizes, dtype or dtype_of_result(c, call.old, result))
    call.texts = {"dst": made, **call.texts}
    c.emit(c.one_line(_made(c, call)))
    return cst.Name(made)


def _made(c: Context, call: Call) -> cst.BaseExpression:
    inner = ", ".join(f"{key}={text}" for key, text in call.texts.items())
    return cst.parse_expression(f"{c.nisa(call.name)}({inner})")

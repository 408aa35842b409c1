"""``nl.all_reduce``: two cores exchange what they have; programs that are a loop today meet between two loops."""

from __future__ import annotations

import libcst as cst

import nki.beta1.language as old_language
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.programs import MEETING
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.operators import operator
from nki.tools.migrate.rewriting.tiles import tile


def all_reduce_to(c: Context, name: str, call: cst.Call) -> list[str]:
    """The statements that give a name to what the programs make together."""
    given = bound(c, call, old_language.all_reduce)
    if "mask" in given:
        raise Unmigrated("nl.all_reduce with a mask")
    of_cores = c.programs.reduced_over_cores(_axes(c, given["program_axes"]))
    part, op = _part(c, given), operator(c, given["op"])
    if not of_cores:
        if len(c.scopes) != 2:
            raise Unmigrated("nl.all_reduce in a branch or in a loop")
        return [f"{name} = {MEETING}({part}, {op}, {c.nl('copy')}, {c.nisa('tensor_tensor')})"]
    other, rank = c.fresh("other"), f"1 - {c.nl('program_id')}(0)"
    c.emit(f"{other} = {c.nl('ndarray')}({part}.shape, dtype={part}.dtype, buffer={c.nl('sbuf')})")
    ranks = f"send_to_rank={rank}, recv_from_rank={rank}"
    c.emit(f"{c.nisa('sendrecv')}(src={part}, dst={other}, {ranks}, pipe_id=0)")
    return [f"{name} = {op}({part}, {other})"]


def _axes(c: Context, node: cst.BaseExpression) -> list[int]:
    """The axes of programs: numbers, or what ``nl.program_id`` returned for them."""
    nodes = [each.value for each in node.elements] if isinstance(node, cst.List | cst.Tuple) else [node]
    found = []
    for each in nodes:
        fact = c.facts.one(each)
        axis = int(each.value) if isinstance(each, cst.Integer) else fact.value if fact is not None else None
        if not isinstance(axis, int):
            raise Unmigrated("nl.all_reduce over axes that are no numbers")
        found.append(axis)
    return found


def _part(c: Context, given: dict[str, cst.BaseExpression]) -> str:
    """The tile of one program, by name, in SBUF and in the dtype of the result."""
    text = tile(c, given["x"], {})
    if "dtype" in given:
        text = f"{c.nl('copy')}({text}, dtype={c.dtype(given['dtype'])})"
    elif c.facts.known(given["x"]).buffer == "psum":
        text = f"{c.nl('copy')}({text})"
    if text.isidentifier():
        return text
    name = c.fresh("part")
    c.emit(f"{name} = {text}")
    return name

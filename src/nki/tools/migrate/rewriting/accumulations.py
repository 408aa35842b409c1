"""``tile += value``: sums of products in PSUM, and one instruction for everything else."""

from __future__ import annotations

import libcst as cst

import nki.beta1.isa as old_isa
import nki.beta1.language as old_language
from nki.tools.migrate.facts import Fact
from nki.tools.migrate.problems import Unmigrated
from nki.tools.migrate.rewriting.arguments import bound
from nki.tools.migrate.rewriting.context import Context
from nki.tools.migrate.rewriting.direct import is_scalar
from nki.tools.migrate.rewriting.instructions import read
from nki.tools.migrate.rewriting.joined import predicated
from nki.tools.migrate.rewriting.operators import OPERATORS
from nki.tools.migrate.rewriting.regions import Cuts, bounds, joint, without
from nki.tools.migrate.rewriting.results import product_cuts
from nki.tools.migrate.rewriting.texts import names_in
from nki.tools.migrate.rewriting.tiles import subscripted, tile, two_operands


def augmented(c: Context, small: cst.AugAssign) -> list[str] | None:
    """The statements for it; None where it is no tile that is added to."""
    fact = c.facts.one(small.target)
    if fact is None or fact.kind != "tensor":
        if isinstance(small.target, cst.Name):
            c.forget(small.target.value)
        return None
    function = OPERATORS.get(type(small.operator))
    if function is None:
        raise Unmigrated("there is no function for this operator")
    if function == "add" and fact.buffer == "psum":
        product = _product(c, small.value)
        if product is not None:
            arguments, cuts = product
            if cuts and isinstance(small.target, cst.Name | cst.Subscript):
                c.cut_sums |= names_in(small.target) & c.accumulated
            dst = tile(c, small.target, cuts)
            return [f"{c.nisa('nc_matmul')}(dst={dst}, {arguments})"]
    return _in_place(c, function, small, fact)


def _in_place(c: Context, function: str, small: cst.AugAssign, place: Fact) -> list[str]:
    """One instruction that reads and writes the tile."""
    mask = bounds(c, small.value, joined=True)
    cuts = joint(c, [small.value], mask)
    has_rows = any(size != 1 for size in place.shape[1:])
    dst, other = two_operands(c, small.target, small.value, cuts)
    op = c.nl(function)
    if mask.joined:
        same = c.facts.kind(small.value) != "tensor" or c.facts.same_dtype(small.value, small.target)
        more = "" if same else f", dtype={c.nl(place.dtype)}"
        return [predicated(c, mask, dst, f"{op}({dst}, {other}{more})", place.shape)]
    if function == "divide":
        text = f"{subscripted(dst)} = {op}({dst}, {other})"
    elif c.facts.kind(small.value) != "tensor" or (has_rows and is_scalar(c, small.value)):
        text = f"{c.nisa('tensor_scalar')}(dst={dst}, data={dst}, op0={op}, operand0={other})"
    else:
        text = f"{c.nisa('tensor_tensor')}(dst={dst}, data1={dst}, data2={other}, op={op})"
    return [text]


def _product(c: Context, value: cst.BaseExpression) -> tuple[str, Cuts] | None:
    """The arguments of nc_matmul for a product, and what is left of it; None for what is no such product."""
    function = c.names.canonical(value.func) if isinstance(value, cst.Call) else ""
    if not isinstance(value, cst.Call) or function not in ("nisa.nc_matmul", "nl.matmul"):
        return None
    given = bound(c, value, old_isa.nc_matmul if function == "nisa.nc_matmul" else old_language.matmul)
    mask = c.masks.read(given.get("mask"))
    if function == "nisa.nc_matmul":
        stationary, moving = (read(c, "nc_matmul", key, given[key], mask.axes) for key in ("stationary", "moving"))
        rest = [f"{k}={c.code(v)}" for k, v in given.items() if k.startswith(("is_", "tile_", "perf"))]
        cuts = {**product_cuts(c, given["stationary"], given["moving"]), **without(mask.axes, 0)}
        return ", ".join([f"stationary={stationary}", f"moving={moving}", *rest]), cuts
    if mask.axes or "transpose_x" not in given or c.one_line(given["transpose_x"]) != "True":
        return None
    stationary, moving = (
        read(c, "nc_matmul", "stationary", given["x"], {}),
        read(c, "nc_matmul", "moving", given["y"], {}),
    )
    return f"stationary={stationary}, moving={moving}", product_cuts(c, given["x"], given["y"])

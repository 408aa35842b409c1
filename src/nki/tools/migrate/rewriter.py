"""One function of the first NKI in today's language, statement by statement."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import libcst as cst

import nki.beta1.isa as old_isa
import nki.beta1.language as old_language
import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import as_dtype
from nki.language.combine import promoted
from nki.tools.migrate.facts import Fact, Facts
from nki.tools.migrate.index_expressions import ONE, IndexReader, Symbolic
from nki.tools.migrate.linear import Linear
from nki.tools.migrate.masks import Bounds, Cut, MaskReader
from nki.tools.migrate.names import Names
from nki.tools.migrate.problems import MARK, Left, NoBox, Unmigrated
from nki.tools.migrate.programs import Programs

WIDTH = 110
"""Longer statements get a line for each argument."""

OPERATORS: dict[type[cst.CSTNode], str] = {
    cst.Add: "add",
    cst.Subtract: "subtract",
    cst.Multiply: "multiply",
    cst.Divide: "divide",
    cst.Modulo: "mod",
    cst.Power: "power",
    cst.BitAnd: "bitwise_and",
    cst.BitOr: "bitwise_or",
    cst.BitXor: "bitwise_xor",
    cst.LeftShift: "left_shift",
    cst.RightShift: "right_shift",
    cst.LessThan: "less",
    cst.LessThanEqual: "less_equal",
    cst.GreaterThan: "greater",
    cst.GreaterThanEqual: "greater_equal",
    cst.Equal: "equal",
    cst.NotEqual: "not_equal",
    cst.AddAssign: "add",
    cst.SubtractAssign: "subtract",
    cst.MultiplyAssign: "multiply",
    cst.DivideAssign: "divide",
}
BINARY = {*OPERATORS.values(), "maximum", "minimum", "logical_and", "logical_or", "logical_xor"}
UFUNCS = {
    "max": "maximum",
    "amax": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "sum": "add",
    "absolute": "abs",
    "true_divide": "divide",
    "mod": "mod",
    "negative": "negative",
}
RANGES = ("nl.affine_range", "nl.sequential_range", "nl.static_range")
CREATIONS = ("nl.ndarray", "nl.zeros", "nl.ones", "nl.full", "nl.empty")
REDUCTIONS = {"nl.max": "maximum", "nl.min": "minimum", "nl.sum": "add"}
GIVEN = ("dma_copy", "tensor_copy_predicated", "nc_stream_shuffle", "select_reduce")
"""Instructions whose destination is an argument already."""
ROWS = ("tensor_reduce", "activation_reduce", "tensor_scalar_reduce", "bn_stats", "bn_aggr", "tensor_partition_reduce")


@dataclass
class Dim:
    """One dimension of a subscript, in today's words.

    Attributes:
        axis: of the result; None if an int drops the dimension.
        text: the start.
        size: how many; "" for all.
        step: of a slice with steps.
        raw: a slice as it stood.
    """

    axis: int | None
    text: str = "0"
    size: str = ""
    step: str = ""
    raw: str = ""


class Rewriter:
    """Rewrites the body of a function.

    Args:
        module: the file.
        names: what its names stand for.
        facts: what expressions were.
        kept: names of index expressions whose definitions stay, because something that uses them stays.
    """

    def __init__(self, module: cst.Module, names: Names, facts: Facts, kept: frozenset[str], used: set[str]) -> None:
        self._module = module
        self._names = names
        self._facts = facts
        self._kept = kept
        self._used = used
        self._indices = IndexReader(names, self.code)
        self._masks = MaskReader(self._indices, self.code, self._minimum)
        self._out: list[str] = []
        self._known: list[dict[str, str]] = [{}]
        self._extents: dict[str, dict[int, Cut]] = {}
        self._shapes: dict[str, list[str]] = {}
        self.needs: set[str] = set()
        self.left: list[tuple[cst.CSTNode, str]] = []
        self.names_left: set[str] = set()
        self._orphans: list[cst.EmptyLine] = []

    # --- names

    def text(self, node: cst.CSTNode) -> str:
        """As it stands in the file."""
        return self._module.code_for_node(node)

    def dtype(self, node: cst.BaseExpression) -> str:
        """A dtype; what the first NKI calls a bool has 8 bits."""
        text = self.code(node)
        return self.nl("uint8") if text in ("bool", "np.bool_") else text

    def one_line(self, node: cst.CSTNode) -> str:
        return re.sub(r"\s*\n\s*", " ", re.sub(r"#[^\n]*", "", self.text(node))).strip()

    def _alias(self, package: str) -> str:
        """What the file calls ``nki.isa`` or ``nki.language``."""
        wanted = {"nl": ("language",), "nisa": ("isa",)}[package]
        for name, dotted in self._names.bound.items():
            if dotted.endswith(f"nki.{wanted[0]}") or dotted == f"nki.beta1.{wanted[0]}":
                return name
        self.needs.add(package)
        return package

    def nl(self, name: str) -> str:
        return f"{self._alias('nl')}.{name}"

    def nisa(self, name: str) -> str:
        return f"{self._alias('nisa')}.{name}"

    def fresh(self, base: str) -> str:
        """A name that the file does not use."""
        name, number = base, 1
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        return name

    def _minimum(self, key: int, text: str) -> str:
        """The name of a variable with this value."""
        for scope in reversed(self._known):
            if text in scope:
                return scope[text]
        kind = "size" if text.startswith("min") else "first"
        name = self.fresh({0: f"p_{kind}", -1: f"f_{kind}"}.get(key, f"f_{kind}"))
        self._out.append(f"{name} = {text}")
        self._known[-1][text] = name
        return name

    def _forget(self, name: str) -> None:
        pattern = re.compile(rf"\b{re.escape(name)}\b")
        for scope in self._known:
            for text in [text for text in scope if pattern.search(text)]:
                del scope[text]

    # --- statements

    def body(self, body: cst.BaseSuite) -> cst.BaseSuite:
        """The statements of a block."""
        if not isinstance(body, cst.IndentedBlock):
            return body
        self._known.append({})
        try:
            found: list[Any] = []
            waiting: list[cst.EmptyLine] = []
            for statement in _one_by_one(body.body):
                made = self._statement(statement)
                if not made:
                    waiting += self._orphans
                    continue
                if waiting:
                    made[0] = made[0].with_changes(leading_lines=(*waiting, *made[0].leading_lines))
                    waiting = []
                found += made
            if not found:
                found.append(cst.parse_statement("pass"))
            return body.with_changes(body=found, footer=(*waiting, *body.footer))
        finally:
            self._known.pop()

    def _statement(self, statement: Any) -> list[Any]:
        before, self._out = self._out, []
        try:
            made = self._changed(statement)
        except Unmigrated as problem:
            self._out = []
            made = [self._marked(statement, str(problem))]
        finally:
            emitted, self._out = self._out, before
        if not emitted:
            return made
        new = [self._parse(text) for text in emitted]
        lines = getattr(made[0], "leading_lines", ()) if made else ()
        new[0] = new[0].with_changes(leading_lines=lines)
        if made:
            made[0] = made[0].with_changes(leading_lines=())
        return [*new, *made]

    def _parse(self, text: str) -> Any:
        return cst.parse_statement(_wrapped(text, self._module.default_indent), config=self._module.config_for_parsing)

    def _marked(self, statement: Any, reason: str) -> Any:
        self.left.append((statement, reason))
        self.names_left |= {n.value for n in _all(statement, cst.Name)}
        mark = cst.EmptyLine(comment=cst.Comment(f"{MARK}{reason}"))
        return statement.with_changes(leading_lines=(*statement.leading_lines, mark))

    def _changed(self, statement: cst.BaseStatement) -> list[cst.BaseStatement]:
        if isinstance(statement, cst.SimpleStatementLine):
            return self._simple(statement)
        if isinstance(statement, cst.For):
            target = {n.value for n in _all(statement.target, cst.Name)}
            for name in target:
                self._forget(name)
            return [statement.with_changes(iter=self.expr(statement.iter), body=self.body(statement.body))]
        if isinstance(statement, cst.If):
            return [self._if(statement)]
        if isinstance(statement, cst.While):
            return [statement.with_changes(test=self.expr(statement.test), body=self.body(statement.body))]
        if isinstance(statement, cst.With):
            return self._with(statement)
        if isinstance(statement, cst.FunctionDef):
            return [statement.with_changes(body=self.body(statement.body))]
        return [statement]

    def _with(self, statement: cst.With) -> list[cst.BaseStatement]:
        items = [item.with_changes(item=self._no_reorder(item.item)) for item in statement.items]
        return [statement.with_changes(items=items, body=self.body(statement.body))]

    def _no_reorder(self, node: cst.BaseExpression) -> cst.BaseExpression:
        if isinstance(node, cst.Call) and self._names.canonical(node.func) == "ncc.no_reorder":
            return cst.parse_expression(f"{self.nl('no_reorder')}()")
        return self.expr(node)

    def _if(self, statement: cst.If) -> cst.If:
        test, body = self.expr(statement.test), self.body(statement.body)
        other = statement.orelse
        if isinstance(other, cst.If):
            other = self._if(other)
        elif isinstance(other, cst.Else):
            other = other.with_changes(body=self.body(other.body))
        return statement.with_changes(test=test, body=body, orelse=other)

    def _simple(self, line: cst.SimpleStatementLine) -> list[cst.BaseStatement]:
        small = line.body[0]
        if isinstance(small, cst.Import | cst.ImportFrom):
            return [line]
        texts = self._small(small)
        if (
            isinstance(small, cst.Assign)
            and self._facts.kind(small.value) in ("index", "grid", "mask")
            and texts is None
        ):
            return [line]
        if texts is None:
            return [line.with_changes(body=[self._descended(each) for each in line.body])]
        comments = [cst.EmptyLine(comment=c) for c in _all(small, cst.Comment)]
        if not texts:
            trailing = line.trailing_whitespace.comment
            kept = [*line.leading_lines, *comments, *([cst.EmptyLine(comment=trailing)] if trailing else [])]
            self._orphans = kept if any(each.comment for each in kept) else []
            return []
        new = [self._parse(text) for text in texts]
        new[0] = new[0].with_changes(leading_lines=(*line.leading_lines, *comments))
        if isinstance(new[-1], cst.SimpleStatementLine):
            new[-1] = new[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
        return new

    def _small(self, small: cst.BaseSmallStatement) -> list[str] | None:
        """The texts of the statements for it; None where only its expressions change."""
        self._reached(small)
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            return self._assign(small, small.targets[0].target, small.value)
        if isinstance(small, cst.AugAssign):
            return self._augmented(small)
        if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            return self._call_statement(small.value)
        return None

    def _reached(self, small: cst.BaseSmallStatement) -> None:
        """Raises Unmigrated for a statement of the language that no example call came to."""
        calls = [
            each for each in _all(small, cst.Call) if self._names.canonical(each.func).startswith(("nl.", "nisa."))
        ]
        parts = _all(small, cst.Subscript) if not calls else []
        known = [each for each in _all(small, cst.BaseExpression) if self._facts.of(each)]
        if calls and not known:
            raise Unmigrated("the example arguments do not lead here")
        if parts and not known and isinstance(small, cst.Assign | cst.AugAssign):
            raise Unmigrated("the example arguments do not lead here")

    # --- assignments

    def _assign(
        self, small: cst.Assign, target: cst.BaseAssignTargetExpression, value: cst.BaseExpression
    ) -> list[str] | None:
        if isinstance(target, cst.Tuple):
            return self._assign_tuple(target, value)
        if isinstance(target, cst.Name):
            return self._assign_name(target.value, value)
        if isinstance(target, cst.Subscript) and self._facts.kind(target) == "tensor":
            return self._assign_part(target, value)
        return None

    def _assign_tuple(self, target: cst.Tuple, value: cst.BaseExpression) -> list[str] | None:
        grid = self._indices.grid(value)
        names = [each.value.value for each in target.elements if isinstance(each.value, cst.Name)]
        for name in names:
            self._forget(name)
        if grid is None or len(names) != len(grid):
            return None
        self._indices.known |= dict(zip(names, grid, strict=True))
        return None if set(names) & self._kept else []

    def _assign_name(self, name: str, value: cst.BaseExpression) -> list[str] | None:
        self._forget(name)
        self._extents.pop(name, None)
        self._shapes.pop(name, None)
        for known in (self._indices.known, self._indices.grids, self._masks.known):
            known.pop(name, None)
        if self._remembered(name, value):
            return None if name in self._kept else []
        if self._facts.kind(value) != "tensor":
            return None
        if isinstance(value, cst.Call):
            function = self._names.canonical(value.func)
            if function in CREATIONS:
                text = self._creation(function, value, name)
                return [f"{name} = {text}"] if text is not None else None
            if function.startswith("nisa."):
                self.instruction(value, name=name)
                texts, self._out = self._out, []
                return texts
        extents = self.extents(value)
        text = self.tile(value, {}, name=name)
        if extents:
            self._extents[name] = extents
        if text == name:
            texts, self._out = self._out, []
            return texts
        return [f"{name} = {text}"]

    def _remembered(self, name: str, value: cst.BaseExpression) -> bool:
        """Whether a value is an index expression, a grid of them or a mask: these are written where they are used."""
        kind = self._facts.kind(value)
        if kind == "grid":
            grid = self._indices.grid(value)
            if grid is None:
                raise Unmigrated("the grid of indices is no nl.mgrid of plain ranges")
            self._indices.grids[name] = grid
        elif kind == "index":
            found = self._indices.read(value)
            if found is None:
                raise Unmigrated("the index expression is no sum of multiples of nl.arange")
            self._indices.known[name] = found
        elif kind == "mask":
            self._masks.known[name] = value
        return kind in ("grid", "index", "mask")

    def _assign_part(self, target: cst.Subscript, value: cst.BaseExpression) -> list[str] | None:
        fact = self._facts.one(target)
        assert fact is not None, "it is a tensor"
        if isinstance(value, cst.Call):
            function = self._names.canonical(value.func)
            if function.startswith("nisa."):
                self.instruction(value, target=target)
                return self._taken()
            if function == "nl.load":
                return self._load_into(target, value)
            if function == "nl.loop_reduce":
                return self._loop_reduce(target, value)
        direct = self._direct(target, value)
        if direct is not None:
            return direct
        bounds = self.bounds(value)
        dst = self.tile(target, bounds.axes)
        if self._facts.kind(value) != "tensor":
            return self._guarded(bounds, [f"{_subscripted(dst)} = {self.code(value)}"])
        source = self.tile(value, bounds.axes)
        if _is_copyable(value):
            return self._guarded(bounds, [f"{self.nisa('tensor_copy')}(dst={dst}, src={source})"])
        return self._guarded(bounds, [f"{_subscripted(dst)} = {source}"])

    def _taken(self) -> list[str]:
        texts, self._out = self._out, []
        return texts

    def _guarded(self, bounds: Bounds, texts: list[str]) -> list[str]:
        """The statements, where the conditions of a mask on loop variables hold."""
        if not bounds.conditions:
            return texts
        before = self._taken()
        indent = self._module.default_indent
        inner = "\n".join(f"{indent}{line}" for text in texts for line in _wrapped(text, indent).splitlines())
        condition = " and ".join(f"({c})" if " or " in c else c for c in bounds.conditions)
        return [*before, f"if {condition}:\n{inner}"]

    def _load_into(self, target: cst.Subscript, call: cst.Call) -> list[str]:
        given = self._bound(call, old_language.load)
        fact, own = self._facts.one(target), self._facts.one(call)
        assert fact is not None and own is not None
        if "dtype" in given and own.dtype != fact.dtype:
            raise Unmigrated(f"nl.load rounds to {own.dtype} first, and the tile is {fact.dtype}")
        bounds = self._masks.read(given.get("mask"))
        dst, src = self.tile(target, bounds.axes), self.tile(given["src"], bounds.axes)
        more = f", oob_mode={self._mode(given['mode'])}" if "mode" in given else ""
        return self._guarded(bounds, [f"{self.nisa('dma_copy')}(dst={dst}, src={src}{more})"])

    def _mode(self, node: cst.BaseExpression) -> str:
        return self.code(node)

    def _loop_reduce(self, target: cst.Subscript, call: cst.Call) -> list[str]:
        given = self._bound(call, old_language.loop_reduce)
        bounds = self._masks.read(given.get("mask"))
        dst = self.tile(target, bounds.axes)
        source = self.tile(next(iter(given.values())), bounds.axes)
        op = self.operator(given["op"])
        text = f"{self.nisa('tensor_tensor')}(dst={dst}, data1={dst}, data2={source}, op={op})"
        return self._guarded(bounds, [text])

    def _direct(self, target: cst.Subscript, value: cst.BaseExpression) -> list[str] | None:
        """``tile[...] = nl.exp(x)`` as one instruction that writes to the tile; None if it is not one."""
        fact, own = self._facts.one(target), self._facts.one(value)
        if own is None or fact is None or own.kind != "tensor":
            return None
        bounds = self.bounds(value)
        instruction = self._as_instruction(value, fact, own, bounds)
        if instruction is None:
            return None
        name, arguments = instruction
        if own.buffer == "psum" and fact.buffer != "psum":
            made = self._allocate(None, own, [str(size) for size in own.shape], self.nl(own.dtype))
            self._out.append(f"{self.nisa(name)}(dst={made}, {arguments})")
            self._out.append(f"{self.nisa('tensor_copy')}(dst={self.tile(target, bounds.axes)}, src={made})")
            return self._guarded(bounds, self._taken())
        dst = self.tile(target, bounds.axes)
        return self._guarded(bounds, [f"{self.nisa(name)}(dst={dst}, {arguments})"])

    def _as_instruction(
        self, value: cst.BaseExpression, target: Fact, own: Fact, bounds: Bounds
    ) -> tuple[str, str] | None:
        facts = self._facts.of(value)
        single = facts and all(len(f.own) == 1 and f.own == facts[0].own for f in facts if f.own)
        issued = next((f.own[0] for f in facts if f.own), "") if single else ""
        binary = self._binary_of(value)
        if binary is not None and issued in ("tensor_tensor", "tensor_scalar"):
            function, left, right, dtype = binary
            if (dtype is not None and own.dtype != target.dtype) or function == "divide":
                return None
            return self._two_operands(issued, function, left, right, bounds)
        if not isinstance(value, cst.Call):
            return None
        function = self._names.canonical(value.func)
        if not function.startswith("nl."):
            return None
        given = self._bound(value, getattr(old_language, function[3:], None))
        if given is None or ("dtype" in given and own.dtype != target.dtype):
            return None
        if function == "nl.copy" and issued == "tensor_copy":
            return "tensor_copy", f"src={self.tile(given['src'], bounds.axes)}"
        if issued in ("activation", "reciprocal") and "x" in given:
            data = self.tile(given["x"], bounds.axes)
            return (
                (issued, f"data={data}")
                if issued == "reciprocal"
                else (issued, f"op={self.code(value.func)}, data={data}")
            )
        if function in REDUCTIONS and issued == "tensor_reduce":
            data = self.tile(given["x"], bounds.axes)
            keep = f", keepdims={self.code(given['keepdims'])}" if "keepdims" in given else ""
            return issued, f"op={self.nl(REDUCTIONS[function])}, data={data}, axis={self.code(given['axis'])}{keep}"
        if function == "nl.matmul" and issued == "nc_matmul" and "transpose_x" in given:
            x, y = self.tile(given["x"], {}), self.tile(given["y"], {})
            return issued, f"stationary={x}, moving={y}, accumulate=False"
        return None

    def _two_operands(
        self, issued: str, function: str, left: cst.BaseExpression, right: cst.BaseExpression, bounds: Bounds
    ) -> tuple[str, str]:
        cuts = self._joint([left, right], bounds)
        a, b = self.operand(left, cuts), self.operand(right, cuts)
        op = self.nl(function)
        if issued == "tensor_tensor":
            return issued, f"data1={a}, data2={b}, op={op}"
        if self._is_scalar(right) and not (self._is_scalar(left) and self._facts.kind(left) != "tensor"):
            return issued, f"data={a}, op0={op}, operand0={b}"
        return issued, f"data={b}, op0={op}, operand0={a}, reverse0=True"

    def _is_scalar(self, node: cst.BaseExpression) -> bool:
        fact = self._facts.one(node)
        if fact is None or fact.kind != "tensor":
            return True
        return fact.dtype == "float32" and all(size == 1 for size in fact.shape[1:])

    def _binary_of(
        self, value: cst.BaseExpression
    ) -> tuple[str, cst.BaseExpression, cst.BaseExpression, cst.BaseExpression | None] | None:
        if isinstance(value, cst.BinaryOperation) and type(value.operator) in OPERATORS:
            return OPERATORS[type(value.operator)], value.left, value.right, None
        if isinstance(value, cst.Comparison) and len(value.comparisons) == 1:
            target = value.comparisons[0]
            if type(target.operator) in OPERATORS:
                return OPERATORS[type(target.operator)], value.left, target.comparator, None
        if isinstance(value, cst.Call):
            function = self._names.canonical(value.func)
            if function.startswith("nl.") and function[3:] in BINARY:
                given = self._bound(value, getattr(old_language, function[3:]))
                if given is not None and "x" in given and "y" in given:
                    return function[3:], given["x"], given["y"], given.get("dtype")
        return None

    def _augmented(self, small: cst.AugAssign) -> list[str] | None:
        fact = self._facts.one(small.target)
        if fact is None or fact.kind != "tensor":
            if isinstance(small.target, cst.Name):
                self._forget(small.target.value)
            return None
        function = OPERATORS.get(type(small.operator))
        if function is None:
            raise Unmigrated("there is no function for this operator")
        product = self._product(small.value)
        if function == "add" and product is not None and fact.buffer == "psum":
            arguments, bounds = product
            dst = self.tile(small.target, _without(bounds.axes, 0))
            return self._guarded(bounds, [f"{self.nisa('nc_matmul')}(dst={dst}, {arguments})"])
        bounds = self.bounds(small.value)
        cuts = self._joint([small.value], bounds)
        dst = self.tile(small.target, cuts)
        other = self.operand(small.value, cuts)
        if function == "divide":
            return self._guarded(bounds, [f"{_subscripted(dst)} = {self.nl(function)}({dst}, {other})"])
        if (self._is_scalar(small.value) and any(size != 1 for size in fact.shape[1:])) or self._facts.kind(
            small.value
        ) != "tensor":
            text = f"{self.nisa('tensor_scalar')}(dst={dst}, data={dst}, op0={self.nl(function)}, operand0={other})"
        else:
            text = f"{self.nisa('tensor_tensor')}(dst={dst}, data1={dst}, data2={other}, op={self.nl(function)})"
        return self._guarded(bounds, [text])

    def _product(self, value: cst.BaseExpression) -> tuple[str, Bounds] | None:
        """The arguments of nc_matmul for a product, and its mask."""
        if not isinstance(value, cst.Call):
            return None
        function = self._names.canonical(value.func)
        if function == "nisa.nc_matmul":
            given = self._bound(value, old_isa.nc_matmul)
            bounds = self._masks.read(given.get("mask"))
            stationary = self.tile(given["stationary"], _only(bounds.axes, 0))
            moving = self.tile(given["moving"], bounds.axes)
            rest = [f"{k}={self.code(v)}" for k, v in given.items() if k.startswith(("is_", "tile_", "perf"))]
            return ", ".join([f"stationary={stationary}", f"moving={moving}", *rest]), bounds
        if function == "nl.matmul":
            given = self._bound(value, old_language.matmul)
            if "transpose_x" not in given or self.one_line(given["transpose_x"]) != "True":
                return None
            bounds = self._masks.read(given.get("mask"))
            if bounds.axes:
                return None
            return f"stationary={self.tile(given['x'], {})}, moving={self.tile(given['y'], {})}", bounds
        return None

    def _call_statement(self, call: cst.Call) -> list[str] | None:
        function = self._names.canonical(call.func)
        if function == "nl.store":
            return self._store(call)
        if function.startswith("nisa.") and function[5:] in GIVEN:
            self.instruction(call)
            return self._taken()
        return None

    def _store(self, call: cst.Call) -> list[str]:
        given = self._bound(call, old_language.store)
        bounds = self._masks.read(given.get("mask"))
        value = given["value"]
        cuts = self._joint([value], bounds)
        fact = self._facts.one(value)
        if fact is None or fact.kind != "tensor":
            dst = self.tile(given["dst"], cuts)
            return self._guarded(bounds, [f"{_subscripted(dst)} = {self.code(value)}"])
        dst, source = self.tile(given["dst"], cuts), self.tile(value, cuts)
        if "mode" in given:
            mode = self._mode(given["mode"])
            return self._guarded(bounds, [f"{self.nisa('dma_copy')}(dst={dst}, src={source}, oob_mode={mode})"])
        return self._guarded(bounds, [f"{self.code(call.func)}({dst}, {source})"])

    # --- instructions

    def instruction(self, call: cst.Call, *, name: str | None = None, target: cst.Subscript | None = None) -> str:
        """Emit an instruction of nki.isa; returns the tile that it wrote to."""
        full = self._names.canonical(call.func)
        own = full[5:]
        old, new = getattr(old_isa, own, None), getattr(nisa, own, None)
        if not inspect.isfunction(old) or new is None:
            raise Unmigrated(f"nisa.{own} has no counterpart of that name")
        given = self._bound(call, old)
        bounds = self._masks.read(given.pop("mask", None))
        dtype, shape = given.pop("dtype", None), given.pop("shape", None)
        result = self._facts.one(call)
        texts = self._pattern(own, given) if own in ("iota", "affine_select") else []
        for hint in ("name", "buffer"):
            given.pop(hint, None)
        for each in given:
            if each not in inspect.signature(new).parameters:
                raise Unmigrated(f"nisa.{own} has no argument {each} any more")
        cuts = self._cuts(own, given, bounds)
        texts += self._arguments(own, given, cuts)
        if "dst" in given:
            dst = self.tile(given["dst"], cuts)
            self._emit(bounds, f"{self.nisa(own)}(dst={dst}, {', '.join(texts)})")
            return dst
        if result is None or result.kind != "tensor":
            raise Unmigrated("the kernel was not executed up to here, so its result has no known shape")
        if target is not None:
            return self._into(own, target, texts, given, bounds, cuts, result, dtype)
        sizes = self._result_shape(own, given, cuts, result, shape)
        kind = self.dtype(dtype) if dtype is not None else self._dtype_text(given, result)
        made = self._allocate(name, result, sizes, kind)
        self._emit(bounds, f"{self.nisa(own)}(dst={made}, {', '.join(texts)})")
        left = {key: cut for key, cut in self._result_cuts(own, cuts).items() if key >= -len(result.shape)}
        if name is not None and left:
            self._extents[name] = left
        return made

    def _arguments(self, own: str, given: dict[str, cst.BaseExpression], cuts: dict[int, Cut]) -> list[str]:
        """The arguments of an instruction but its destination."""
        texts = [f"{key}={self._argument(own, key, node, cuts)}" for key, node in given.items() if key != "dst"]
        texts = [text for text in texts if not text.endswith("unknown_engine")]
        if own == "range_select" and "reduce_cmd" not in given:
            texts.append(f"reduce_cmd={self.nisa('reduce_cmd.idle')}")
        return texts

    def _pattern(self, own: str, given: dict[str, cst.BaseExpression]) -> list[str]:
        """The pattern that stands for an index expression or a comparison of two."""
        if own == "iota":
            found = self._indices.read(given.pop("expr"))
            if found is None or not found.axes:
                raise Unmigrated("nisa.iota of something else than a sum of multiples of nl.arange")
            return _pattern_of(found, "")
        expression, relation = self._masks.relation(given.pop("pred"))
        return _pattern_of(expression, f"cmp_op={self.nl(relation)}")

    def _emit(self, bounds: Bounds, text: str) -> None:
        self._out += self._guarded(bounds, [text])

    def _into(
        self,
        own: str,
        target: cst.Subscript,
        texts: list[str],
        given: dict[str, cst.BaseExpression],
        bounds: Bounds,
        cuts: dict[int, Cut],
        result: Fact,
        dtype: cst.BaseExpression | None,
    ) -> str:
        place = self._facts.one(target)
        assert place is not None
        if own == "nc_matmul":
            texts.append("accumulate=False")
        where = self._result_cuts(own, cuts)
        dst = self.tile(target, where)
        twice = dtype is not None and result.dtype != place.dtype
        moved = result.buffer == "psum" and place.buffer != "psum"
        squeezed = tuple(s for s in result.shape if s != 1) != tuple(s for s in place.shape if s != 1)
        if twice or moved or squeezed:
            kind = self.nl(result.dtype)
            made = self._allocate(None, result, self._result_shape(own, given, cuts, result, None), kind)
            self._emit(bounds, f"{self.nisa(own)}(dst={made}, {', '.join(texts)})")
            self._emit(bounds, f"{self.nisa('tensor_copy')}(dst={dst}, src={made})")
            return dst
        self._emit(bounds, f"{self.nisa(own)}(dst={dst}, {', '.join(texts)})")
        return dst

    def _cuts(self, own: str, given: dict[str, cst.BaseExpression], bounds: Bounds) -> dict[int, Cut]:
        tiles = [node for node in given.values() if self._facts.kind(node) == "tensor"]
        if own in ("nc_matmul", "nc_transpose", "dma_transpose"):
            return dict(bounds.axes)
        return self._joint(tiles, bounds)

    def _result_cuts(self, own: str, cuts: dict[int, Cut]) -> dict[int, Cut]:
        if own in ("nc_transpose", "dma_transpose"):
            swapped = {0: -1, -1: 0}
            return {swapped.get(key, key): cut for key, cut in cuts.items()}
        if own == "nc_matmul":
            return _without(cuts, 0)
        if own in ROWS:
            return _only(cuts, 0)
        return cuts

    def _argument(self, own: str, key: str, node: cst.BaseExpression, cuts: dict[int, Cut]) -> str:
        if key in ("op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1"):
            if self.one_line(node) == "None":
                return "None"
            return self.operator(node)
        if self._facts.kind(node) == "tensor":
            if own == "nc_matmul" and key == "stationary":
                cuts = _only(cuts, 0)
            return self.tile(node, cuts)
        return self.code(node)

    def operator(self, node: cst.BaseExpression) -> str:
        """An operator of nki.language for one that may be NumPy's."""
        name = self._names.canonical(node)
        package, _, function = name.partition(".")
        if package in ("np", "nl") and function:
            return self.nl(UFUNCS.get(function, function))
        return self.code(node)

    def _result_shape(
        self,
        own: str,
        given: dict[str, cst.BaseExpression],
        cuts: dict[int, Cut],
        result: Fact,
        shape: cst.BaseExpression | None,
    ) -> list[str]:
        """The sizes of a result, in the user's names where that is possible."""
        if shape is not None:
            return self._sizes_of(shape)
        operands = [node for node in given.values() if self._facts.kind(node) == "tensor"]
        where = self._result_cuts(own, cuts)
        if own == "nc_matmul":
            a, b = self.sizes(given["stationary"]), self.sizes(given["moving"])
            found = [a[-1], *b[1:]]
        elif own in ("nc_transpose", "dma_transpose"):
            found = self.sizes(operands[0])[::-1]
        else:
            found = [str(size) for size in result.shape]
            for operand in operands:
                fact = self._facts.one(operand)
                if fact is not None and fact.shape == result.shape:
                    found = self.sizes(operand)
                    break
            else:
                if operands and len(result.shape) == 2:
                    found[0] = self.sizes(operands[0])[0]
        self._same_everywhere(found, result)
        return _cut_sizes(found, where)

    def _same_everywhere(self, found: list[str], result: Fact) -> None:
        if len(found) != len(result.shape):
            found[:] = [str(size) for size in result.shape]

    def _dtype_text(self, given: dict[str, cst.BaseExpression], result: Fact) -> str:
        for node in given.values():
            fact = self._facts.one(node)
            if isinstance(node, cst.Name) and fact is not None and fact.dtype == result.dtype:
                return f"{node.value}.dtype"
        return self.nl(result.dtype)

    def _allocate(self, name: str | None, result: Fact, sizes: list[str], dtype: str) -> str:
        made = name if name is not None else self.fresh("tile")
        shape = f"({', '.join(sizes)})"
        common = {re.sub(r"\.shape\[\d+\]$", "", size) for size in sizes}
        if len(common) == 1 and all(re.fullmatch(rf"[\w]+\.shape\[{at}\]", size) for at, size in enumerate(sizes)):
            owner = common.pop()
            if len(self._shapes.get(owner, sizes)) == len(sizes):
                shape = f"{owner}.shape"
        self._out.append(f"{made} = {self.nl('ndarray')}({shape}, dtype={dtype}, buffer={self.nl(result.buffer)})")
        self._shapes[made] = [f"{made}.shape[{at}]" for at in range(len(sizes))]
        return made

    # --- creation

    def _creation(self, function: str, call: cst.Call, name: str) -> str | None:
        """The new call; None if only its arguments change."""
        given = self._bound(call, getattr(old_language, function[3:]))
        shape = given.pop("shape")
        sizes, partition = self._dimensions(shape)
        fact = self._facts.one(call)
        place = given.pop("buffer", None)
        buffer = self._buffer(place, fact)
        kind = given.pop("dtype", None)
        dtype = self.dtype(kind) if kind is not None else self.nl("float32")
        value = f", {self.code(given['fill_value'])}" if "fill_value" in given else ""
        function = function.replace("nl.empty", "nl.ndarray")
        if buffer.endswith("psum") and function == "nl.zeros" and name in self._accumulated:
            function = "nl.ndarray"
        if fact is not None and fact.buffer not in ("sbuf", "psum"):
            partition = 0
        blocks = sizes[:partition]
        tile = sizes[partition:]
        named = self._label(given, blocks)
        inner = f"({', '.join(tile)}{',' if len(tile) == 1 else ''})"
        if not blocks and not isinstance(shape, cst.Tuple | cst.List):
            inner = self.code(shape)
        text = f"{self.nl(function[3:])}({inner}{value}, dtype={dtype}, buffer={buffer}{named})"
        for size in reversed(blocks):
            text = f"[{text} for _ in range({size})]"
        rank = len(fact.shape) - partition if fact is not None else len(tile)
        self._shapes[name] = tile if len(tile) == rank else [f"{tile[0]}[{at}]" for at in range(rank)]
        keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
        fits = keywords <= {"shape", "dtype", "buffer", "name"} and not value and not isinstance(shape, cst.List)
        same = fits and not blocks and function == self._names.canonical(call.func) and bool(named) == ("name" in given)
        if same and kind is not None and dtype == self.one_line(kind) and self.code_or_same(place) == buffer:
            return None
        return text

    def _label(self, given: dict[str, cst.BaseExpression], blocks: list[str]) -> str:
        """The name of a tensor; blocks would all have the same one."""
        label = given.get("name")
        if label is None or blocks or self.one_line(label) in ("''", '""'):
            return ""
        return f", name={self.code(label)}"

    _accumulated: frozenset[str] = frozenset()
    programs: Programs | None = None

    def code_or_same(self, node: cst.BaseExpression | None) -> str:
        """The text of an expression; today's default for none."""
        return self.nl("sbuf") if node is None else self.one_line(node)

    def _buffer(self, node: cst.BaseExpression | None, fact: Fact | None) -> str:
        if node is None:
            return self.nl("sbuf")
        if fact is not None and not self._names.canonical(node).startswith("nl."):
            return self.nl(fact.buffer)
        return self.code(node)

    def _dimensions(self, shape: cst.BaseExpression) -> tuple[list[str], int]:
        """The sizes of a shape, and which is the partitions'."""
        if not isinstance(shape, cst.Tuple | cst.List):
            return [self.code(shape)], 0
        sizes, partition = [], 0
        for at, element in enumerate(shape.elements):
            node = element.value
            if isinstance(node, cst.Call) and self._names.canonical(node.func) == "nl.par_dim":
                partition = at
                node = node.args[0].value
            sizes.append(self.code(node))
        return sizes, partition

    def _sizes_of(self, shape: cst.BaseExpression) -> list[str]:
        return self._dimensions(shape)[0]

    # --- tiles

    def bounds(self, node: cst.BaseExpression) -> Bounds:
        """The mask of a call."""
        if isinstance(node, cst.Call):
            for arg in node.args:
                if arg.keyword is not None and arg.keyword.value == "mask":
                    return self._masks.read(arg.value)
        return Bounds()

    def extents(self, node: cst.BaseExpression) -> dict[int, Cut]:
        """What is left of a tile that comes from masked instructions."""
        if isinstance(node, cst.Name):
            return self._extents.get(node.value, {})
        if isinstance(node, cst.Subscript):
            return self._extents_of_part(node)
        if isinstance(node, cst.Call):
            function = self._names.canonical(node.func)
            found = dict(self.bounds(node).axes)
            args = [arg.value for arg in node.args if arg.keyword is None or arg.keyword.value not in ("mask", "dtype")]
            if function == "nl.load":
                return found
            for arg in args:
                found = {**self.extents(arg), **found}
            if function in ("nl.matmul",):
                return {}
            fact = self._facts.one(node)
            if function.startswith("nl.") and function[3:] in ("max", "min", "sum", "mean", "var", "prod", "all"):
                return _only(found, 0)
            if isinstance(node.func, cst.Attribute) and not function:
                return self.extents(node.func.value) if fact is not None else {}
            return found if function.startswith(("nl.", "nisa.")) else {}
        if isinstance(node, cst.BinaryOperation):
            return {**self.extents(node.right), **self.extents(node.left)}
        if isinstance(node, cst.UnaryOperation):
            return self.extents(node.expression)
        if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
            return {**self.extents(node.comparisons[0].comparator), **self.extents(node.left)}
        return {}

    def _extents_of_part(self, node: cst.Subscript) -> dict[int, Cut]:
        own = self.extents(node.value) if isinstance(node.value, cst.Name) else {}
        if not own:
            return {}
        fact, base = self._facts.one(node), self._facts.one(node.value)
        if fact is None or base is None:
            return {}
        found = {}
        for key, cut in own.items():
            if key == 0:
                if fact.shape and fact.shape[0] == base.shape[0]:
                    found[0] = cut
            elif fact.shape[key] == base.shape[key]:
                found[key] = cut
        return found

    def _joint(self, tiles: Iterable[cst.BaseExpression], bounds: Bounds) -> dict[int, Cut]:
        """What a mask and the operands leave together."""
        found = dict(bounds.axes)
        for node in tiles:
            for key, cut in self.extents(node).items():
                found.setdefault(key, cut)
        return found

    def sizes(self, node: cst.BaseExpression) -> list[str]:
        """The sizes of a tile."""
        fact = self._facts.one(node)
        assert fact is not None
        if isinstance(node, cst.Name):
            return [f"{node.value}.shape[{at}]" for at in range(len(fact.shape))]
        if isinstance(node, cst.Subscript) and self._is_box(node):
            dims = [dim for dim in self._dims(node) if dim.axis is not None]
            by_axis = {dim.axis: dim for dim in dims}
            if len(by_axis) == len(fact.shape) and all(dim.size for dim in dims):
                return [by_axis[axis].size for axis in range(len(fact.shape))]
        return [str(size) for size in fact.shape]

    def _is_box(self, node: cst.Subscript) -> bool:
        try:
            self._dims(node)
        except Unmigrated:
            return False
        return True

    def operand(self, node: cst.BaseExpression, cuts: dict[int, Cut]) -> str:
        return self.tile(node, cuts) if self._facts.kind(node) == "tensor" else self.code(node)

    def tile(self, node: cst.BaseExpression, cuts: dict[int, Cut], name: str | None = None) -> str:
        """A tile as an operand of today's language, of which only a part is taken."""
        fact = self._facts.one(node)
        if isinstance(node, cst.Subscript) and self._facts.kind(node.value) == "tensor":
            return self._part(node, cuts)
        if isinstance(node, cst.Call) and self._names.canonical(node.func).startswith("nisa."):
            return self.instruction(node, name=name)
        text = self.code(node)
        wanted = {key: cut for key, cut in cuts.items() if self.extents(node).get(key) != cut}
        return self._sliced(text, fact, wanted)

    def _sliced(self, text: str, fact: Fact | None, cuts: dict[int, Cut]) -> str:
        if not cuts or fact is None:
            return text
        rank = len(fact.shape)
        parts = [":"] * rank
        for key, cut in cuts.items():
            at = 0 if key == 0 else rank + key
            if at < 0 or (at == 0 and key != 0) or fact.shape[at] == 1:
                continue
            parts[at] = f"{cut.low}:{cut.high}"
        while parts and parts[-1] == ":":
            parts.pop()
        return f"{text}[{', '.join(parts)}]" if parts else text

    def _part(self, node: cst.Subscript, cuts: dict[int, Cut]) -> str:
        """A subscript with slices."""
        fact, base = self._facts.one(node), self._facts.one(node.value)
        assert fact is not None and base is not None
        only = node.slice[0].slice
        if len(node.slice) == 1 and isinstance(only, cst.Index) and self._facts.kind(only.value) == "mask":
            inner = self._masks.read(only.value)
            return self.tile(node.value, {**cuts, **inner.axes})
        if len(node.slice) == 1 and isinstance(only, cst.Index) and isinstance(only.value, cst.Ellipsis):
            return self.tile(node.value, cuts)
        if isinstance(only, cst.Index) and self._facts.kind(only.value) == "tensor":
            return self._chosen_rows(node, cuts)
        try:
            dims = self._dims(node)
        except NoBox:
            return self._pattern_view(node, cuts)
        return self._box(node, dims, fact, base, {**self._extents_of_part(node), **cuts})

    def _box(self, node: cst.Subscript, dims: list[Dim], fact: Fact, base: Fact, cuts: dict[int, Cut]) -> str:
        """A subscript of slices and numbers."""
        text = self.code(node.value)
        blocks, rest = dims[: base.blocks], dims[base.blocks :]
        for dim in blocks:
            if dim.axis is not None:
                raise Unmigrated("an access spans several blocks, which are tiles of their own now")
            text += f"[{dim.text}]"
        parts = [self._dim(dim, len(fact.shape), fact, cuts) for dim in rest]
        sizes = self._shapes.get(node.value.value) if isinstance(node.value, cst.Name) else None
        if base.buffer in ("sbuf", "psum") and len(rest) == len(base.shape) - base.blocks:
            parts = [
                ":" if sizes is not None and at < len(sizes) and part == f"0:{sizes[at]}" else part
                for at, part in enumerate(parts)
            ]
            if all(part == ":" for part in parts):
                return text
            if sizes is not None and len(sizes) == len(parts):
                whole = base.shape[base.blocks :]
                same = fact.shape == whole and all(d.text == "0" and not d.raw and not d.step for d in rest)
                if same and not cuts:
                    return text
        while len(parts) > 1 and parts[-1] == ":":
            parts.pop()
        return f"{text}[{', '.join(parts)}]" if parts else text

    def _chosen_rows(self, node: cst.Subscript, cuts: dict[int, Cut]) -> str:
        """Rows of a tensor in HBM that a tile chooses at run time."""
        fact, base = self._facts.one(node), self._facts.one(node.value)
        first, *rest = [each.slice for each in node.slice]
        assert isinstance(first, cst.Index) and fact is not None and base is not None
        index = self._facts.one(first.value)
        if base.buffer in ("sbuf", "psum") or index is None or index.shape[1:] != (1,) or cuts:
            raise Unmigrated("an index of run time")
        rows = self.tile(first.value, {})
        text = f"{self.code(node.value)}.vector_select(0, {rows})"
        parts = []
        for at, each in enumerate(rest):
            if isinstance(each, cst.Slice):
                parts.append(self.one_line(each))
                continue
            assert isinstance(each, cst.Index)
            if self._facts.kind(each.value) == "tensor":
                raise Unmigrated("several indices of run time")
            found = self._indices.read(each.value)
            if found is None or len(found.axes) > 1:
                raise Unmigrated("an index of run time")
            size = next((extent.size for extent in found.axes.values()), None)
            if any(extent.step.constant != 1 for extent in found.axes.values()):
                raise Unmigrated("an index of run time")
            if size is None:
                parts.append(found.text)
            elif found.text == "0" and size.constant == base.shape[at + 1]:
                parts.append(":")
            else:
                parts.append(self._dim(Dim(at + 1, found.text, str(size)), len(fact.shape), fact, {}))
        while parts and parts[-1] == ":":
            parts.pop()
        return f"{text}[{', '.join([':', *parts])}]" if parts else text

    def _pattern_view(self, node: cst.Subscript, cuts: dict[int, Cut]) -> str:
        """An access along several axes at once, as a pattern of strides."""
        fact, base = self._facts.one(node), self._facts.one(node.value)
        assert fact is not None and base is not None
        nodes = [each.slice.value for each in node.slice if isinstance(each.slice, cst.Index)]
        found = [self._indices.read(each) for each in nodes]
        if not base.whole or len(found) != len(base.shape) or cuts or self._extents_of_part(node):
            raise Unmigrated("one dimension is indexed along several axes, of a part of a tensor")
        text = self.code(node.value)
        for symbolic in found[: base.blocks]:
            if symbolic is None or symbolic.axes:
                raise Unmigrated("an access spans several blocks, which are tiles of their own now")
            text += f"[{symbolic.text}]"
        inner = [each for each in found[base.blocks :] if each is not None]
        sizes = base.shape[base.blocks :]
        strides = [Linear.number(prod(sizes[at + 1 :])) for at in range(len(sizes))]
        rank = max(each.rank for each in inner)
        if rank != len(fact.shape):
            raise Unmigrated("the index has other axes than its tile")
        return f"{text}.ap({_strides(inner, strides, fact.shape)})"

    def _dim(self, dim: Dim, rank: int, fact: Fact, cuts: dict[int, Cut]) -> str:
        if dim.axis is None:
            return dim.text
        key = 0 if dim.axis == 0 else dim.axis - rank
        cut = cuts.get(key)
        if cut is not None and fact.shape[dim.axis] != 1:
            if dim.step:
                raise Unmigrated("a mask cuts a slice with steps")
            if dim.raw == ":" or (not dim.raw and dim.text == "0"):
                return f"{cut.low}:{cut.high}"
            start = dim.text if cut.low == "0" else f"{dim.text} + {cut.low}"
            return f"{self.nl('ds')}({start}, {cut.size})"
        if dim.raw:
            return dim.raw
        if dim.step:
            last = Linear.of(dim.text) + (Linear.of(dim.size) - ONE) * Linear.of(dim.step) + ONE
            return f"{dim.text}:{last}:{dim.step}"
        number, size = Linear.of(dim.text).constant, Linear.of(dim.size)
        if number is not None:
            return f"{number}:{size + Linear.number(number)}"
        if dim.size == "1":
            return f"{dim.text}:{Linear.of(dim.text) + ONE}"
        return f"{self.nl('ds')}({dim.text}, {dim.size})"

    def _dims(self, node: cst.Subscript) -> list[Dim]:
        """What each dimension of a subscript is."""
        base = self._facts.one(node.value)
        fact = self._facts.one(node)
        assert base is not None and fact is not None
        elements = [each.slice for each in node.slice]
        nodes = [each.value for each in elements if isinstance(each, cst.Index)]
        if len(nodes) == 1 == len(elements) and self._facts.kind(nodes[0]) == "grid":
            grid = self._indices.grid(nodes[0])
            if grid is None:
                raise Unmigrated("the grid of indices is no nl.mgrid of plain ranges")
            return self._placed(grid, base, fact)
        if any(self._facts.kind(each) == "runtime" or self._facts.kind(each) == "tensor" for each in nodes):
            raise Unmigrated("an index of run time")
        if any(isinstance(each, cst.Name) and each.value == "None" for each in nodes):
            raise Unmigrated("None in an index of a tensor")
        if any(self._facts.kind(each) == "index" for each in nodes):
            return self._advanced(nodes, elements, base, fact)
        return self._basic(elements, base, fact)

    def _basic(self, elements: Sequence[cst.BaseSlice], base: Fact, fact: Fact) -> list[Dim]:
        count = len(base.shape)
        given = list(elements)
        at = next(
            (n for n, e in enumerate(given) if isinstance(e, cst.Index) and isinstance(e.value, cst.Ellipsis)), None
        )
        whole = cst.Slice(None, None)
        if at is not None:
            given[at : at + 1] = [whole] * (count - len(given) + 1)
        given += [whole] * (count - len(given))
        dims: list[Dim] = []
        axis = 0
        ints = sum(not self._is_slice(each) for each in given)
        keep = len(fact.shape) - (count - ints)
        for dim, each in enumerate(given):
            if self._is_slice(each):
                dims.append(self._slice(each, axis))
                axis += 1
            elif dim >= base.blocks and keep > 0 and base.buffer in ("sbuf", "psum"):
                assert isinstance(each, cst.Index)
                dims.append(Dim(axis, self.code(each.value), "1"))
                axis, keep = axis + 1, keep - 1
            else:
                assert isinstance(each, cst.Index)
                dims.append(Dim(None, self.code(each.value)))
        return dims

    def _is_slice(self, each: cst.BaseSlice) -> bool:
        if isinstance(each, cst.Slice):
            return True
        assert isinstance(each, cst.Index)
        return isinstance(each.value, cst.Call) and self._names.canonical(each.value.func) == "nl.ds"

    def _slice(self, each: cst.BaseSlice, axis: int) -> Dim:
        if isinstance(each, cst.Index):
            call = each.value
            assert isinstance(call, cst.Call)
            start, size = (self.code(arg.value) for arg in call.args)
            return Dim(axis, start, size, raw=f"{self.code(call.func)}({start}, {size})")
        assert isinstance(each, cst.Slice)
        low = self.code(each.lower) if each.lower is not None else "0"
        step = self.code(each.step) if each.step is not None else ""
        if each.upper is None:
            return Dim(axis, low, "", step, raw=self.one_line(each))
        size = str(Linear.of(self.code(each.upper)) - Linear.of(low))
        return Dim(axis, low, size, step, raw=self.one_line(each))

    def _advanced(
        self, nodes: list[cst.BaseExpression], elements: Sequence[cst.BaseSlice], base: Fact, fact: Fact
    ) -> list[Dim]:
        if len(nodes) != len(elements):
            raise Unmigrated("slices and index expressions in one subscript")
        found: list[Symbolic] = []
        for node in nodes:
            symbolic = self._indices.read(node)
            if symbolic is None:
                raise Unmigrated(f"the index {self.one_line(node)} is no sum of multiples of nl.arange")
            found.append(symbolic)
        return self._placed(found, base, fact)

    def _placed(self, found: list[Symbolic], base: Fact, fact: Fact) -> list[Dim]:
        rank = max(each.rank for each in found)
        dims: list[Dim] = []
        for each in found:
            axes = {axis: extent for axis, extent in each.axes.items() if extent.step.terms}
            if len(axes) > 1:
                raise NoBox("one dimension is indexed along several axes")
            if not axes:
                dims.append(Dim(None, each.text))
                continue
            ((axis, extent),) = axes.items()
            step = extent.step.constant
            if step is not None and step < 1:
                raise NoBox("an index with a negative step")
            dims.append(Dim(axis + rank, each.text, str(extent.size), "" if step == 1 else str(extent.step)))
        if len(fact.shape) == rank:
            self._fill_axes(dims, rank, base.blocks)
        order = [dim.axis for dim in dims if dim.axis is not None]
        if order != sorted(order) or len(set(order)) != len(order):
            raise NoBox("the index permutes or repeats axes")
        if len(order) != len(fact.shape) and not (len(order) == 1 and len(fact.shape) == 2):
            raise NoBox("the index has more axes than dimensions")
        dims += [Dim(len(order) + n, raw=":") for n in range(len(base.shape) - len(dims))]
        return dims

    def _fill_axes(self, dims: list[Dim], rank: int, blocks: int) -> None:
        """Axes of size 1 that no index has are those of numbers, which then keep their dimension."""
        missing = [axis for axis in range(rank) if axis not in {dim.axis for dim in dims}]
        for axis in missing:
            for at, dim in enumerate(dims):
                if at < blocks or dim.axis is not None:
                    continue
                left = [d.axis for d in dims[:at] if d.axis is not None]
                right = [d.axis for d in dims[at + 1 :] if d.axis is not None]
                if all(each < axis for each in left) and all(each > axis for each in right):
                    dim.axis, dim.size = axis, "1"
                    break

    # --- expressions

    def code(self, node: cst.BaseExpression) -> str:
        """The text of an expression in today's language, on one line."""
        return self.one_line(self.expr(node))

    def expr(self, node: Any) -> Any:
        """An expression in today's language."""
        special = self._special(node)
        if special is not None:
            if special == self.one_line(node):
                return node
            made = cst.parse_expression(special)
            lpar = getattr(node, "lpar", ())
            if lpar and hasattr(made, "lpar") and not made.lpar and isinstance(made, cst.BinaryOperation):
                made = made.with_changes(lpar=node.lpar, rpar=node.rpar)
            return made
        return self._descended(node)

    def _descended(self, node: Any) -> Any:
        return node.visit(_Inside(self, node))

    def _special(self, node: cst.CSTNode) -> str | None:
        if isinstance(node, cst.Call):
            return self._call(node)
        kind = self._facts.kind(node)
        if isinstance(node, cst.Subscript) and kind == "tensor" and self._facts.kind(node.value) == "tensor":
            return self._part(node, {})
        if isinstance(node, cst.BinaryOperation | cst.Comparison) and kind == "tensor":
            binary = self._binary_of(node)
            if binary is None:
                raise Unmigrated("there is no function for this operator")
            return self._function(binary[0], [binary[1], binary[2]], node, {})
        if isinstance(node, cst.UnaryOperation) and kind == "tensor":
            name = {cst.Minus: "negative", cst.BitInvert: "invert"}.get(type(node.operator))
            return None if name is None else f"{self.nl(name)}({self.tile(node.expression, {})})"
        if isinstance(node, cst.Name | cst.Subscript | cst.BinaryOperation) and kind in ("index", "grid"):
            raise Unmigrated("an index expression is used outside of a subscript")
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        return None

    def _attribute(self, node: cst.Attribute) -> str | None:
        owner = self._facts.one(node.value)
        if owner is not None and owner.kind == "tensor" and owner.blocks:
            tile = self.code(node.value) + "[0]" * owner.blocks
            if node.attr.value == "dtype":
                return f"{tile}.dtype"
            if node.attr.value == "shape":
                sizes = [str(size) for size in owner.shape]
                return f"({', '.join(sizes)})"
        name = self._names.canonical(node)
        if name.startswith("ncc."):
            raise Unmigrated(f"{name} has no counterpart")
        package, _, own = name.partition(".")
        if package == "nisa" and own.endswith("_engine") and own != "unknown_engine":
            return self.nisa(f"engine.{own.removesuffix('_engine')}")
        return None

    def _function(
        self,
        name: str,
        operands: list[cst.BaseExpression],
        node: cst.CSTNode,
        keywords: dict[str, str],
        bounds: Bounds | None = None,
    ) -> str:
        """A call of a function of nki.language."""
        if bounds is not None and bounds.conditions:
            raise Unmigrated("the mask of a value that is used at once depends on loop variables alone")
        cuts = self._joint(operands, bounds or Bounds())
        texts = [self.operand(each, cuts) for each in operands]
        fact = self._facts.one(node)
        dtypes = [f.dtype for each in operands if (f := self._facts.one(each)) is not None and f.kind == "tensor"]
        if "dtype" not in keywords and fact is not None and dtypes:
            kinds = [as_dtype(each) for each in dtypes]
            usual = kinds[0] if len(kinds) == 1 else promoted(kinds[0], kinds[1])
            if str(usual) != fact.dtype:
                keywords = {**keywords, "dtype": self.nl(fact.dtype)}
        more = [f"{key}={value}" for key, value in keywords.items()]
        return f"{self.nl(name)}({', '.join([*texts, *more])})"

    def _call(self, call: cst.Call) -> str | None:
        function = self._names.canonical(call.func)
        if function in RANGES:
            inner = ", ".join(self.code(arg.value) for arg in call.args if arg.keyword is None)
            return f"range({inner})"
        if function in CREATIONS:
            return self._creation(function, call, "")
        if function == "nl.par_dim":
            return self.code(call.args[0].value)
        if function in ("nl.arange", "nl.mgrid"):
            raise Unmigrated("an index expression is used outside of a subscript")
        if function.startswith("nisa."):
            own = function[5:]
            if own == "get_nc_version":
                return None
            return self.instruction(call)
        if function.startswith("nl."):
            return self._language(function[3:], call)
        if function.startswith("ncc."):
            raise Unmigrated(f"{function} has no counterpart")
        return self._method(call)

    def _method(self, call: cst.Call) -> str | None:
        if not isinstance(call.func, cst.Attribute) or self._facts.kind(call.func.value) != "tensor":
            return None
        name, owner = call.func.attr.value, call.func.value
        if name == "broadcast_to":
            shape = (
                self.code(call.args[0].value)
                if len(call.args) == 1
                else f"({', '.join(self.code(a.value) for a in call.args)})"
            )
            return f"{self.nl('broadcast_to')}({self.tile(owner, {})}, {shape})"
        if name == "astype":
            return f"{self.nl('copy')}({self.tile(owner, {})}, dtype={self.code(call.args[0].value)})"
        if name == "expand_dims":
            return f"{self.tile(owner, {})}.expand_dim({self.code(call.args[0].value)})"
        if name == "reshape":
            fact = self._facts.one(owner)
            args = call.args
            inner = self.code(args[0].value) if len(args) == 1 else f"({', '.join(self.code(a.value) for a in args)})"
            return f"{self.tile(owner, {})}.reshape({inner})" if fact is not None else None
        if name == "assert_shape":
            return self.tile(owner, {})
        return None

    def _language(self, name: str, call: cst.Call) -> str | None:
        kind = self._facts.kind(call)
        if kind in ("index", "grid"):
            raise Unmigrated("an index expression is used outside of a subscript")
        if kind == "number" and name in BINARY:
            return None
        if name in ("program_id", "num_programs", "program_ndim"):
            return self.programs.text(name, call) if self.programs is not None else None
        if name in ("ds", "device_print", "shared_constant"):
            return f"{self.code(call.func)}({self._constant(call)})" if name == "shared_constant" else None
        old, new = getattr(old_language, name, None), getattr(nl, name, None)
        if old is None or not callable(new):
            raise Unmigrated(f"nl.{name} has no counterpart")
        given = self._bound(call, old)
        bounds = self._masks.read(given.pop("mask", None))
        operands = [node for node in given.values() if self._facts.kind(node) == "tensor"]
        if not operands:
            if name == "rand" and "dtype" not in given:
                return f"{self.code(call.func)}({self.code(given['shape'])}, dtype={self.nl('float32')})"
            return None
        rest = {k: v for k, v in given.items() if v not in operands}
        for key in rest:
            if key not in inspect.signature(new).parameters:
                raise Unmigrated(f"nl.{name} has no argument {key} any more")
        if name in ("load", "load_transpose2d", "matmul", "transpose"):
            return self._whole(name, call, operands, rest, bounds)
        binary = self._binary_of(call)
        if binary is not None:
            keywords = {"dtype": self.dtype(binary[3])} if binary[3] is not None else {}
            return self._function(name, [binary[1], binary[2]], call, keywords, bounds)
        return self._general(name, given, call, bounds)

    def _constant(self, call: cst.Call) -> str:
        """The array of a constant; a dtype of its own is that of the array now."""
        given = self._bound(call, old_language.shared_constant)
        text = self.code(next(iter(given.values())))
        dtype = given.get("dtype")
        return text if dtype is None else f"{text}.astype({self.code(dtype)})"

    def _whole(
        self,
        name: str,
        call: cst.Call,
        operands: list[cst.BaseExpression],
        rest: dict[str, cst.BaseExpression],
        bounds: Bounds,
    ) -> str:
        """A function whose operands are no parts of each other's shapes."""
        if bounds.conditions or (bounds.axes and name in ("matmul", "transpose")):
            raise Unmigrated(f"nl.{name} with this mask")
        texts = [self.tile(each, bounds.axes) for each in operands]
        more = [f"{k}={self.code(v)}" for k, v in rest.items()]
        return f"{self.code(call.func)}({', '.join([*texts, *more])})"

    def _general(self, name: str, given: dict[str, cst.BaseExpression], call: cst.Call, bounds: Bounds) -> str:
        if bounds.conditions:
            raise Unmigrated("the mask of a value that is used at once depends on loop variables alone")
        operands = [node for node in given.values() if self._facts.kind(node) == "tensor"]
        cuts = self._joint(operands, bounds)
        texts = []
        positional = {id(arg.value) for arg in call.args if arg.keyword is None}
        moved = self._last_axes(name, given)
        for key, node in given.items():
            text = self.operand(node, cuts)
            if moved is not None:
                text = f"{text}.permute({moved[0]})" if key == "x" else str(moved[1]) if key == "axis" else text
            texts.append(text if id(node) in positional else f"{key}={text}")
        fact, first = self._facts.one(call), self._facts.one(operands[0])
        usual = "dtype" in given or name in ("where", "broadcast_to") or fact is None or first is None
        if not usual and fact.dtype != first.dtype:  # type: ignore[union-attr]
            texts.append(f"dtype={self.nl(fact.dtype)}")  # type: ignore[union-attr]
        return f"{self.code(call.func)}({', '.join(texts)})"

    def _last_axes(self, name: str, given: dict[str, cst.BaseExpression]) -> tuple[tuple[int, ...], list[int]] | None:
        """The order of axes in which those that are reduced are the last ones, and these; None if they are."""
        if name not in ("sum", "max", "min", "mean", "var", "prod") or "axis" not in given:
            return None
        fact = self._facts.one(given["x"])
        try:
            value = ast.literal_eval(self.one_line(given["axis"]))
        except ValueError:
            return None
        assert fact is not None
        rank = len(fact.shape)
        axes = sorted(int(axis) % rank for axis in (value if isinstance(value, tuple | list) else [value]))
        last = list(range(rank - len(axes), rank))
        if axes == last:
            return None
        if "keepdims" in given:
            raise Unmigrated("a reduction of axes that are not the last ones, and that keeps them")
        return (*(axis for axis in range(rank) if axis not in axes), *axes), last

    def _bound(self, call: cst.Call, function: Callable[..., Any] | None) -> Any:
        """The arguments of a call by the names of parameters."""
        if function is None or any(arg.star for arg in call.args):
            raise Unmigrated("the arguments of a call are not written one by one")
        parameters = [p.name for p in inspect.signature(function).parameters.values()]
        found: dict[str, cst.BaseExpression] = {}
        for at, arg in enumerate(call.args):
            if arg.keyword is not None:
                found[arg.keyword.value] = arg.value
            elif at < len(parameters):
                found[parameters[at]] = arg.value
        if "mask" in found and self.one_line(found["mask"]) == "None":
            del found["mask"]
        for hint in ("lazy_initialization", "max_free_vec_size", "precise_schedule", "no_reuse"):
            found.pop(hint, None)
        return found


class _Inside(cst.CSTTransformer):
    """Rewrites the expressions within a node."""

    def __init__(self, rewriter: Rewriter, root: cst.CSTNode) -> None:
        self._rewriter = rewriter
        self._root = root

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Param | cst.Annotation):
            return False
        return node is self._root or not isinstance(node, cst.BaseExpression)

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        if original_node is self._root or not isinstance(original_node, cst.BaseExpression):
            return updated_node
        return self._rewriter.expr(original_node)


def _one_by_one(statements: Iterable[Any]) -> list[Any]:
    """Statements, each on a line of its own."""
    found: list[Any] = []
    for each in statements:
        if isinstance(each, cst.SimpleStatementLine) and len(each.body) > 1:
            lines = [
                cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
                for small in each.body
            ]
            lines[0] = lines[0].with_changes(leading_lines=each.leading_lines)
            lines[-1] = lines[-1].with_changes(trailing_whitespace=each.trailing_whitespace)
            found += lines
        else:
            found.append(each)
    return found


def _strides(indices: list[Symbolic], strides: list[Linear], shape: tuple[int, ...]) -> str:
    """The pattern of an access, for the strides of the dimensions that are indexed."""
    rank = len(shape)
    steps = [Linear()] * rank
    counts = [Linear.number(size) for size in shape]
    offset = Linear()
    for symbolic, stride in zip(indices, strides, strict=True):
        offset = offset + symbolic.base * stride
        for axis, extent in symbolic.axes.items():
            steps[axis + rank] = steps[axis + rank] + extent.step * stride
            counts[axis + rank] = extent.size
    pattern = ", ".join(f"[{step}, {count}]" for step, count in zip(steps, counts, strict=True))
    return f"[{pattern}], offset={offset}" if offset.terms else f"[{pattern}]"


def _pattern_of(found: Symbolic, more: str) -> list[str]:
    """The arguments of an instruction that computes an index expression."""
    free = [axis for axis in range(-found.rank + 1, 0)]
    parts = [found.axes.get(axis) for axis in free]
    pattern = ", ".join("[0, 1]" if part is None else f"[{part.step}, {part.size}]" for part in parts)
    partition = found.axes.get(-found.rank)
    texts = [f"pattern=[{pattern or '[0, 1]'}]"]
    if str(found.base) != "0":
        texts.append(f"offset={found.base}")
    texts.append(f"channel_multiplier={partition.step if partition is not None else 0}")
    return [*texts, more] if more else texts


def _all(node: cst.CSTNode, kind: type[Any]) -> list[Any]:
    found = [node] if isinstance(node, kind) else []
    for child in node.children:
        found += _all(child, kind)
    return found


def _is_copyable(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name | cst.Subscript)


def _subscripted(text: str) -> str:
    return text if text.endswith("]") else f"{text}[...]"


def _only(cuts: dict[int, Cut], key: int) -> dict[int, Cut]:
    return {k: cut for k, cut in cuts.items() if k == key}


def _without(cuts: dict[int, Cut], key: int) -> dict[int, Cut]:
    return {k: cut for k, cut in cuts.items() if k != key}


def _cut_sizes(sizes: list[str], cuts: dict[int, Cut]) -> list[str]:
    found = list(sizes)
    for key, cut in cuts.items():
        at = 0 if key == 0 else len(found) + key
        if 0 <= at < len(found) and not found[at].endswith(f".shape[{at}]"):
            found[at] = cut.high
    return found


def _wrapped(text: str, indent: str = "    ") -> str:
    """A statement with a line for each argument, if it is long."""
    if len(text) <= WIDTH or "\n" in text or not text.endswith(")"):
        return text
    depth, start = 0, len(text)
    for at in reversed(range(len(text))):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth == 0:
            start = at
            break
    parts, depth, last = [], 0, start + 1
    for at in range(start + 1, len(text) - 1):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if text[at] == "," and depth == 0:
            parts.append(text[last:at].strip())
            last = at + 1
    parts.append(text[last:-1].strip())
    lines = "".join(f"\n{indent}{part}," for part in parts if part)
    return f"{text[: start + 1]}{lines}\n)"


__all__ = ["Left", "Rewriter"]

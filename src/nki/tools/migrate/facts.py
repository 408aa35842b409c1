"""What expressions of a kernel evaluated to, when it was traced: rewriting is driven by facts.

The file is executed once more with a call around each expression of its functions, which writes down what it was: a
tile, its shape, dtype and memory, an index expression, a mask, or something of Python's.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import libcst as cst

from nki.beta1.language.memory import par_dim
from nki.beta1.language.programs import ProgramId
from nki.beta1.tensors.index import Grid, Index
from nki.beta1.tensors.mask import Mask
from nki.beta1.tensors.scalar import RunTimeIndex
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing import session as sessions
from nki.core.access import DynamicSlice
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.spec.program import Issued
from nki.tools.migrate.nodes import transformed, walk

HOOK = "__nki_migrate_fact__"
_MOST = 64
"""Different facts of one expression that are kept."""
_OFTEN = 512
"""How often an expression is looked at: loops of thousands of trips say nothing new."""


@dataclass(frozen=True, slots=True)
class Fact:
    """What an expression was, once.

    Attributes:
        kind: "tensor", "index", "grid", "mask", "slice", "runtime", "register", "number", "none" or "other".
        shape: of a tensor or an index expression.
        dtype, buffer: of a tensor; ``float32``, ``psum``.
        blocks: how many leading dimensions of a tensor count blocks.
        exists: what a masked instruction made of a tensor, as (low, high) for each axis; None for all.
        whole: whether it is all of its memory.
        value: of a number that is a bool; the axis of one that ``nl.program_id`` returned.
        own: the instructions that the expression itself issued, as texts.
        empty: whether it is a mask that is nowhere true.
    """

    kind: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    buffer: str = ""
    blocks: int = 0
    exists: tuple[tuple[int, int], ...] | None = None
    whole: bool = False
    value: Any = None
    own: tuple[str, ...] = ()


class Facts:
    """The facts of all expressions of a file, by the number of the expression."""

    def __init__(self) -> None:
        self._found: dict[int, dict[Fact, None]] = defaultdict(dict)
        self._numbers: dict[cst.CSTNode, int] = {}
        self._times: dict[int, int] = defaultdict(int)
        self._mark = 0

    def number(self, node: cst.CSTNode) -> int:
        """The number of an expression."""
        return self._numbers.setdefault(node, len(self._numbers))

    def record(self, number: int, value: Any) -> Any:
        """Write down what an expression is; returns it."""
        found = self._found[number]
        running = sessions._CURRENT.get()
        items = running.items if running is not None else []
        own = items[self._mark :] if self._mark <= len(items) else []
        self._mark = len(items)
        self._times[number] += 1
        if len(found) < _MOST and self._times[number] <= _OFTEN:
            found[fact_of(value, own)] = None
        return value

    def of(self, node: cst.CSTNode) -> list[Fact]:
        """What an expression was; empty if it was not evaluated."""
        if isinstance(node, cst.IfExp):
            return [*self.of(node.body), *self.of(node.orelse)]
        number = self._numbers.get(node)
        return list(self._found.get(number, ())) if number is not None else []

    def kind(self, node: cst.CSTNode) -> str:
        """The kind that it always was; "" if it was not evaluated, or was of several."""
        kinds = {fact.kind for fact in self.of(node)}
        return kinds.pop() if len(kinds) == 1 else ""

    def one(self, node: cst.CSTNode) -> Fact | None:
        """The first fact of an expression; None if it was not evaluated."""
        return next(iter(self.of(node)), None)

    def same_dtype(self, one: cst.CSTNode, other: cst.CSTNode) -> bool:
        """Whether two expressions were tensors of one dtype, in all calls the same."""
        dtypes = {fact.dtype for node in (one, other) for fact in self.of(node)}
        return len(dtypes) == 1

    def known(self, node: cst.CSTNode) -> Fact:
        """The first fact of an expression that was evaluated."""
        return self.of(node)[0]


def fact_of(value: Any, own: list[Any]) -> Fact:
    """What a value is."""
    if isinstance(value, Tensor):
        return _tensor(value, own)
    if isinstance(value, NkiTensor):
        return Fact("tensor", tuple(value.shape), str(value.dtype), str(value.buffer))
    if isinstance(value, VirtualRegister):
        return Fact("register")
    if isinstance(value, Grid):
        return Fact("grid", tuple(value[0].shape))
    if isinstance(value, Index):
        return Fact("index", value.shape)
    if isinstance(value, Mask):
        return Fact("mask")
    if isinstance(value, RunTimeIndex):
        return Fact("runtime")
    if isinstance(value, ProgramId):
        return Fact("number", value=value.axis)
    if isinstance(value, bool | int | float) and not isinstance(value, par_dim):
        return Fact("number", value=value if isinstance(value, bool) else None)
    return Fact("none" if value is None else "slice" if isinstance(value, DynamicSlice | slice) else "other")


def _tensor(value: Tensor, own: list[Any]) -> Fact:
    memory = value.memory
    blocks = 0
    if memory.partition:
        blocks = max(0, value.ndim - (len(memory.sizes) - memory.partition))
    exists = None
    if memory.exists is not None:
        seen = value.visible()
        exists = tuple((low, high) for low, high in seen) if seen is not None else tuple((0, 0) for _ in value.shape)
    names = tuple(_name(each) for each in own if isinstance(each, Issued))
    return Fact(
        "tensor",
        value.shape,
        str(value.dtype),
        str(value.buffer),
        blocks,
        exists,
        value.access.shape == memory.sizes,
        own=names[-6:],
    )


def _name(issued: Issued) -> str:
    return issued.instruction.name


class _Instrument(cst.CSTTransformer):
    """Puts the call around the expressions of functions."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._skipped: set[cst.CSTNode] = set()
        self._depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._depth += 1
        for part in (node.name, node.params, *node.decorators, node.returns):
            if part is not None:
                self._skip_all(part)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        self._depth -= 1
        return updated_node

    def _skip_all(self, node: cst.CSTNode) -> None:
        self._skipped.update(walk(node))

    def visit_Call(self, node: cst.Call) -> None:
        func = node.func
        while isinstance(func, cst.Attribute):
            self._skipped.add(func)
            func = func.value
            if not isinstance(func, cst.Attribute):
                break
        if isinstance(node.func, cst.Name):
            self._skipped.add(node.func)

    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self._skipped.add(node.keyword)

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._skipped.add(node.attr)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self._skipped.add(node.target)

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        self._target(node.target)

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self._target(node.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        self._target(node.target)
        self._skip_all(node.annotation)

    def visit_For(self, node: cst.For) -> None:
        self._target(node.target)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self._target(node.target)

    def visit_Del(self, node: cst.Del) -> None:
        self._skip_all(node)

    def visit_Global(self, node: cst.Global) -> None:
        self._skip_all(node)

    def visit_Nonlocal(self, node: cst.Nonlocal) -> None:
        self._skip_all(node)

    def visit_Import(self, node: cst.Import) -> None:
        self._skip_all(node)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        self._skip_all(node)

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        self._skip_all(node)

    def visit_WithItem(self, node: cst.WithItem) -> None:
        if node.asname is not None:
            self._skip_all(node.asname)

    def visit_ExceptHandler(self, node: cst.ExceptHandler) -> None:
        for part in (node.type, node.name):
            if part is not None:
                self._skip_all(part)

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self._skip_all(node.params)

    def _target(self, node: cst.CSTNode) -> None:
        """What is assigned to is no value; what it is indexed with is one."""
        self._skipped.add(node)
        if isinstance(node, cst.Tuple | cst.List):
            for element in node.elements:
                self._target(element.value)

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        changed = super().on_leave(original_node, updated_node)
        if self._depth == 0 or original_node in self._skipped:
            return changed
        if isinstance(original_node, cst.SimpleStatementLine):
            return self._with_targets(original_node, changed)
        wrapped = cst.Call | cst.Subscript | cst.BinaryOperation | cst.UnaryOperation | cst.Comparison
        if isinstance(original_node, wrapped | cst.Name | cst.Attribute | cst.BooleanOperation):
            return self._hooked(original_node, changed)
        return changed

    def _hooked(self, original: cst.CSTNode, updated: Any) -> cst.Call:
        number = cst.Integer(str(self._facts.number(original)))
        return cst.Call(cst.Name(HOOK), [cst.Arg(number), cst.Arg(updated)])

    def _with_targets(self, original: cst.SimpleStatementLine, updated: Any) -> Any:
        """Statements that look at what is assigned to, in front of the assignment."""
        looks: list[Any] = []
        for small, new in zip(original.body, updated.body, strict=True):
            if isinstance(small, cst.Assign) and isinstance(small.targets[0].target, cst.Subscript):
                looks.append((small.targets[0].target, new.targets[0].target))
            elif isinstance(small, cst.AugAssign):
                looks.append((small.target, new.target))
        if not looks:
            return updated
        lines = [cst.SimpleStatementLine([cst.Expr(self._hooked(old, new))]) for old, new in looks]
        return cst.FlattenSentinel([*lines, updated])


def instrumented(module: cst.Module, facts: Facts) -> str:
    """The text of a file whose functions write down facts under the name `HOOK`."""
    return transformed(module, _Instrument(facts)).code

"""A file of NKI 0.2 to 0.6, changed where today's NKI has another spelling; everything else stays as it is."""

from __future__ import annotations

from typing import Any

import libcst as cst

from nki.tools.migrate.facts import Facts
from nki.tools.migrate.later.calls import rewritten_call
from nki.tools.migrate.later.kernels import returned, without_separator
from nki.tools.migrate.later.loops import for_loop, while_loop
from nki.tools.migrate.later.renamed import JIT_KEYWORDS, RANGES, RENAMED, SETTINGS
from nki.tools.migrate.names import Names
from nki.tools.migrate.nodes import all_of
from nki.tools.migrate.problems import MARK, Unmigrated
from nki.tools.migrate.programs import Programs
from nki.tools.migrate.rewriting.context import Context

_BUFFERS = ("sbuf", "psum", "hbm", "private_hbm", "shared_hbm")
_MAKING = tuple(f"nl.{name}" for name in ("ndarray", "zeros", "ones", "full", "empty", "rand"))

_RINGS = ("collective_permute_implicit", "collective_permute_implicit_current_processing_rank_id")

_CONDITIONAL = (
    cst.BooleanOperation,
    cst.DictComp,
    cst.GeneratorExp,
    cst.IfExp,
    cst.Lambda,
    cst.ListComp,
    cst.SetComp,
)
"""Expressions that do not evaluate each part of them once."""


class Later(cst.CSTTransformer):
    """Rewrites a file.

    Attributes:
        left: statements that stay, and why.
        needs: packages of today's language that the file has to import.
    """

    def __init__(self, module: cst.Module, names: Names, facts: Facts) -> None:
        used = {name.value for name in all_of(module, cst.Name)}
        programs = Programs(names, ())
        none: frozenset[str] = frozenset()
        self._c = Context(module, names, facts, programs, used, none, none, lambda c, node: node)
        self._names = names
        self._facts = facts
        self._statements: list[cst.CSTNode] = []
        self._outer: list[list[str]] = []
        self._reason = ""
        self._conditional = 0
        self._returned: frozenset[str] = frozenset()
        self._after: dict[cst.CSTNode, frozenset[str]] = {}
        self.left: list[tuple[cst.CSTNode, str]] = []

    @property
    def needs(self) -> set[str]:
        return self._c.needs

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._conditional += isinstance(node, _CONDITIONAL)
        return super().on_visit(node)

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        self._conditional -= isinstance(original_node, _CONDITIONAL)
        return super().on_leave(original_node, updated_node)

    # --- kernels

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._returned = returned(node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        inner = [each.decorator for each in original_node.decorators]
        functions = [each.func if isinstance(each, cst.Call) else each for each in inner]
        if all(self._names.canonical(each) != "nki.jit" for each in functions):
            return updated_node
        return updated_node.with_changes(params=without_separator(updated_node.params))

    # --- statements

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        self._statements.append(node)
        self._outer.append(self._c.taken())
        self._reason = ""

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: Any) -> Any:
        self._statements.pop()
        emitted = self._c.taken()
        self._c.put_back(self._outer.pop())
        if self._reason:
            return self._marked(original_node, original_node, self._reason)
        if not emitted:
            return updated_node
        new = [self._c.parse(text) for text in emitted]
        new[0] = new[0].with_changes(leading_lines=updated_node.leading_lines)
        if _says_nothing(updated_node):
            new[-1] = new[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
            return cst.FlattenSentinel(new)
        return cst.FlattenSentinel([*new, updated_node.with_changes(leading_lines=())])

    def _marked(self, original: cst.CSTNode, statement: Any, reason: str) -> Any:
        self._reason = ""
        self.left.append((original, reason))
        mark = cst.EmptyLine(comment=cst.Comment(f"{MARK}{reason}"))
        if any(
            line.comment is not None and line.comment.value == f"{MARK}{reason}" for line in statement.leading_lines
        ):
            return statement
        return statement.with_changes(leading_lines=(*statement.leading_lines, mark))

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        """Which names are read behind each loop of a block."""
        for at, statement in enumerate(node.body):
            if isinstance(statement, cst.For | cst.While):
                behind = {name.value for later in node.body[at + 1 :] for name in all_of(later, cst.Name)}
                self._after[statement] = frozenset(behind)

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> Any:
        node = original_node.iter
        name = self._names.canonical(node.func) if isinstance(node, cst.Call) else ""
        dynamic = name == "nl.dynamic_range" or (
            name in RANGES and any(self._facts.kind(arg.value) == "register" for arg in node.args)  # type: ignore[attr-defined]
        )
        return self._loop(for_loop, original_node, updated_node) if dynamic else updated_node

    def leave_While(self, original_node: cst.While, updated_node: cst.While) -> Any:
        if self._facts.kind(original_node.test) != "register":
            return updated_node
        return self._loop(while_loop, original_node, updated_node)

    def _loop(self, change: Any, old: Any, new: Any) -> Any:
        try:
            return cst.FlattenSentinel(change(self._c, old, new, self._after.get(old, frozenset())))
        except Unmigrated as problem:
            return self._marked(old, new, str(problem))

    # --- expressions

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        today = RENAMED.get(self._names.canonical(original_node), "")
        package, _, name = today.partition(".")
        if not today:
            return updated_node
        spell = {"nl": self._c.nl, "nisa": self._c.nisa}.get(package)
        return cst.parse_expression(spell(name) if spell is not None else today)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name = self._names.canonical(original_node.func)
        if name in RANGES and any(self._facts.kind(arg.value) == "register" for arg in original_node.args):
            return original_node.with_changes(args=updated_node.args)
        if name in _MAKING:
            return self._buffer(original_node, updated_node)
        if name.startswith("nki.collectives."):
            return self._collective(name, updated_node)
        if name == "nki.jit":
            return self._decorator(original_node, updated_node)
        if not name.startswith("nisa.") or not self._statements:
            return updated_node
        try:
            if self._conditional and self._facts.kind(original_node) == "tensor":
                raise Unmigrated("an instruction in an expression that is not always evaluated has no destination")
            return rewritten_call(self._c, original_node, updated_node, name[5:], self._target(original_node))
        except Unmigrated as problem:
            self._reason = str(problem)
            return updated_node

    def _target(self, call: cst.Call) -> str:
        """The name that a statement gives to the result of a call."""
        line = self._statements[-1]
        assert isinstance(line, cst.SimpleStatementLine), "what is a statement here"
        small = line.body[0]
        if len(line.body) != 1 or not isinstance(small, cst.Assign) or small.value is not call:
            return ""
        target = small.targets[0].target
        return target.value if len(small.targets) == 1 and isinstance(target, cst.Name) else ""

    def _buffer(self, old: cst.Call, call: cst.Call) -> cst.Call:
        """``buffer="sbuf"`` is an object today, and what a kernel returns is in HBM that cores share."""
        args = []
        shared = bool(self._statements) and self._target(old) in self._returned
        for arg in call.args:
            value = arg.value
            name = value.evaluated_value if isinstance(value, cst.SimpleString) else None
            name = self._names.canonical(value).removeprefix("nl.") if name is None else name
            if arg.keyword is not None and arg.keyword.value == "buffer" and name in _BUFFERS:
                today = "shared_hbm" if name == "hbm" and shared else str(name)
                if isinstance(value, cst.SimpleString) or today != name:
                    arg = arg.with_changes(value=cst.parse_expression(self._c.nl(today)))
            args.append(arg)
        return call.with_changes(args=args)

    def _collective(self, name: str, call: cst.Call) -> cst.Call:
        """``num_channels=2`` of a ring is a list of channels today, and is not told to what asks for a rank."""
        if not name.endswith(_RINGS):
            return call
        args = []
        for arg in call.args:
            value = arg.value
            if arg.keyword is not None and arg.keyword.value == "num_channels":
                if name.endswith("_rank_id"):
                    continue
                known = isinstance(value, cst.Integer)
                text = str(list(range(int(value.value)))) if known else f"list(range({self._c.one_line(value)}))"  # type: ignore[attr-defined]
                arg = arg.with_changes(keyword=cst.Name("channel_ids"), value=cst.parse_expression(text))
            args.append(arg)
        last = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return call.with_changes(args=[*args[:-1], last])

    def _decorator(self, old: cst.Call, new: cst.Call) -> cst.BaseExpression:
        """``nki.jit`` without keywords that have no effect."""
        said = {arg.keyword.value for arg in old.args if arg.keyword is not None}
        for key in sorted(said & SETTINGS.keys()):
            self.left.append((old, f"nki.jit({key}=...): {SETTINGS[key]}"))
        args = [arg for arg in new.args if arg.keyword is None or arg.keyword.value not in JIT_KEYWORDS]
        if len(args) == len(new.args):
            return new
        if not args:
            return new.func
        return new.with_changes(args=[*args[:-1], args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


def _says_nothing(line: Any) -> bool:
    """Whether a statement is a name alone, or gives one to itself."""
    small = line.body[0] if len(line.body) == 1 else None
    if isinstance(small, cst.Expr):
        return isinstance(small.value, cst.Name)
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        target = small.targets[0].target
        return isinstance(target, cst.Name) and isinstance(small.value, cst.Name) and target.value == small.value.value
    return False

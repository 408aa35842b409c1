"""Loop statements: which ``for`` or ``while`` of the source a running frame is at, and what its body may not do.

``for i in nl.dynamic_range(n):`` and ``while register:`` are recognised where they run and not where they are written.
Python asks ``dynamic_range`` for its iterator, and the register for its truth; the frame that asks is at an instruction
whose position in the source says which statement that is (Python keeps positions since 3.11). So nothing is rewritten:
closures, methods, decorators, globals, debuggers and tracebacks are Python's own, and it does not matter how the
function that holds the loop was reached, or in which module it is. The source itself is read for what running the body
once cannot show: ``break``, ``continue``, ``return``, and names whose value would have to reach the next trip.
"""

from __future__ import annotations

import ast
import dis
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FrameType

from nki.core.errors import FrontendError
from nki.core.locks import cached_property
from nki.core.source import Location
from nki.core.syntax import parsed
from nki.frontend.loops.liveness import bindings, read_after, read_in_next_trip

Span = tuple[int, int, int, int]
"""First line and column, last line and column; columns in bytes."""

_PLAIN = (ast.Name, ast.Attribute, ast.Subscript)
_COMPUTED = (ast.Compare, ast.BinOp, ast.Call, ast.NamedExpr)
_TESTS = ("POP_JUMP_", "TO_BOOL", "COMPARE_OP")
"""Instructions that take the truth of a value: jumps, since Python 3.13 also what stands before them."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Statement:
    """A loop in the source.

    Attributes:
        loop: its node.
        ancestors: the nodes around it, from the module inwards.
    """

    loop: ast.For | ast.While
    ancestors: tuple[ast.AST, ...]

    @property
    def header(self) -> ast.expr:
        """What Python evaluates to run the loop."""
        return self.loop.iter if isinstance(self.loop, ast.For) else self.loop.test

    @property
    def is_plain(self) -> bool:
        """True if the header names a value, and does not make one."""
        return isinstance(self.header, _PLAIN)

    @cached_property
    def risks(self) -> dict[str, tuple[ast.AST, str]]:
        """Names bound in the body whose value is asked for later: where they are bound, and when they are read."""
        again, after = read_in_next_trip(self.loop), read_after(self.loop, self.ancestors)
        return {
            name: (node, "in the next trip" if name in again else "after the loop")
            for name, node in bindings(self.loop).items()
            if name in again or name in after
        }

    @cached_property
    def replaced(self) -> set[str]:
        """Names that the body binds to another value; an augmented assignment may change the one that is there."""
        changed = {id(node.target) for node in ast.walk(self.loop) if isinstance(node, ast.AugAssign)}
        return {
            node.id
            for statement in self.loop.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in changed
        }

    @cached_property
    def counters(self) -> dict[str, ast.AST]:
        """Attributes that the body changes in place, such as ``state.count += 1``, as dotted names."""
        return {
            ast.unparse(node.target): node
            for node in ast.walk(self.loop)
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute) and _is_dotted(node.target)
        }

    @cached_property
    def escape(self) -> ast.stmt | None:
        """The first statement that would leave the body."""
        return next(_escapes(self.loop.body, inside_loop=False), None)

    def check_body(self, where: Location) -> None:
        """Raise FrontendError "loop.escape" at the first statement that would leave the body."""
        if self.escape is not None:
            word = type(self.escape).__name__.lower()
            raise FrontendError(
                "loop.escape",
                f"{word} in the body of a device loop",
                rule="the body is traced once and runs from its first line to its last in every trip",
                source="nki/deep-dives/nki-dynamic-loops.rst",
                fix="compute the trip count first, or loop with `while register:` and clear the register"
                if word != "continue"
                else "put the rest of the body under the opposite `if`",
                location=at_node(self.escape, where),
            )


@dataclass(frozen=True, slots=True)
class SourceLoops:
    """The loops of one file, by the spans that Python may report for them."""

    by_span: dict[Span, Statement]

    def find(self, span: Span | None, line: int | None) -> Statement | None:
        """The loop at a position; the only one of a line, where Python was told to forget columns."""
        if span is not None:
            return self.by_span.get(span)
        found = {id(s): s for s in self.by_span.values() if line is not None and _is_header_line(s, line)}
        return next(iter(found.values())) if len(found) == 1 else None


def for_statement(frame: FrameType) -> Statement | None:
    """The ``for`` that asks for an iterator; None if something else does. Raises "loop.source" without source."""
    statement = _statement(frame)
    found = statement is not None and isinstance(statement.loop, ast.For) and _operation(frame) == "GET_ITER"
    return statement if found else None


def while_statement(frame: FrameType) -> Statement | None:
    """The ``while`` whose whole condition is being tested; None if something else is."""
    statement = _statement(frame)
    if statement is None or not isinstance(statement.loop, ast.While) or not _operation(frame).startswith(_TESTS):
        return None
    test = statement.loop.test
    chained = isinstance(test, ast.Compare) and len(test.ops) > 1
    return statement if isinstance(test, (*_PLAIN, *_COMPUTED)) and not chained else None


def has_source(frame: FrameType) -> bool:
    """Whether the text of the frame's file can be read."""
    return bool(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def at_node(node: ast.AST, where: Location) -> Location:
    """A location with the same frames, whose innermost one points at a node of its source."""
    assert isinstance(node, ast.stmt | ast.expr | ast.arg), "nodes with a position"
    inner = where.frames[0]
    start, end = (
        _characters(inner.file, line, column)
        for line, column in ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
    )
    placed = replace(inner, line=node.lineno, column=start, end_line=node.end_lineno or 0, end_column=end)
    return Location((placed, *where.frames[1:]))


def _operation(frame: FrameType) -> str:
    """Name of the instruction that the frame executes; a call, for example, may ask for an iterator or a truth too."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]]


def _statement(frame: FrameType) -> Statement | None:
    code = frame.f_code
    lines = linecache.getlines(code.co_filename, frame.f_globals)
    if not lines:
        return None
    first, last, start, end = list(code.co_positions())[frame.f_lasti // 2]
    known = first is not None and last is not None and start is not None and end is not None
    span = (first, start, last, end) if known else None
    return _read("".join(lines)).find(span, first)  # type: ignore[arg-type]


@lru_cache(maxsize=32)  # a loop of a kernel asks in every trace
def _read(text: str) -> SourceLoops:
    """A file that does not parse any more has no loops that a frame could be at."""
    try:
        tree = parsed(text)
    except SyntaxError:
        return SourceLoops({})
    return SourceLoops({span: statement for statement in _loops(tree, ()) for span in _spans(statement)})


def _loops(node: ast.AST, ancestors: tuple[ast.AST, ...]) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        around = (*ancestors, node)
        if isinstance(child, ast.For | ast.While):
            yield Statement(child, around)
        yield from _loops(child, around)


def _spans(statement: Statement) -> Iterator[Span]:
    """Python 3.11 reports the whole statement, later ones the header."""
    for node in (statement.loop, statement.header):
        yield (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)


def _is_header_line(statement: Statement, line: int) -> bool:
    return statement.loop.lineno <= line <= (statement.header.end_lineno or 0)


def _escapes(nodes: list[ast.stmt], inside_loop: bool) -> Iterator[ast.stmt]:
    """Statements that leave the loop whose body this is; `inside_loop`: break and continue belong to another one."""
    for node in nodes:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break | ast.Continue) and not inside_loop):
            yield node
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        loops = isinstance(node, ast.For | ast.AsyncFor | ast.While)
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts = [part for part in value if isinstance(part, ast.stmt)]
                inner = [s for p in value if isinstance(p, ast.ExceptHandler | ast.match_case) for s in p.body]
                yield from _escapes([*parts, *inner], inside_loop or (loops and field == "body"))


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _characters(file: str, line: int, column: int) -> int:
    """Python's syntax trees count UTF-8 bytes, people count characters."""
    return len(linecache.getline(file, line).encode()[:column].decode(errors="ignore"))

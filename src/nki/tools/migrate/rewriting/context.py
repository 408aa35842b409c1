"""What the parts of the rewriting hand down: the file, its names and facts, and what is known at this statement."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import libcst as cst

from nki.tools.migrate.facts import Facts
from nki.tools.migrate.index_expressions import IndexReader
from nki.tools.migrate.masks import Cut, MaskReader
from nki.tools.migrate.names import Names
from nki.tools.migrate.programs import Programs
from nki.tools.migrate.rewriting.texts import wrapped

_MODULES = {"nl": "nki.language", "nisa": "nki.isa"}


class Context:
    """One function while it is rewritten.

    Args:
        module: the file.
        names: what its names stand for.
        facts: what expressions were.
        programs: the grid that the kernel was called with.
        used: names that the file uses.
        accumulated: names of tiles that nothing but products is added to.
        only_masks: names that are nothing but masks.
        expression: rewrites an expression.
        is_kernel: whether it is called from outside of kernels.

    Attributes:
        indices, masks: readers of index expressions and masks, with the ones that have names.
        extents: what masks left of tiles, by name and axis.
        shapes: sizes of tiles as texts, by name.
        needs: packages of today's language that the file has to import.
        left: statements that stay, and why.
        definitions: statements that gave names to index expressions and masks, which are written where they are used.
        depths: the innermost of the blocks around this statement that a name is assigned in; 1 for the function's.
        slices: start and size of ``nl.ds(...)`` as texts, by name.
        guards: conditions under which names have a value.
        guarding: branches that stand for conditions of masks.
        cut_sums: names of `accumulated` of which products leave something out.
        conditions: names of masks that are True, and not None, where nothing is masked.
        orphans: comments of a statement that is gone, for the next one.
    """

    def __init__(
        self,
        module: cst.Module,
        names: Names,
        facts: Facts,
        programs: Programs,
        used: set[str],
        accumulated: frozenset[str],
        only_masks: frozenset[str],
        expression: Callable[[Context, Any], Any],
        *,
        is_kernel: bool = False,
    ) -> None:
        self.module = module
        self.names = names
        self.facts = facts
        self.programs = programs
        self.accumulated = accumulated
        self.only_masks = only_masks
        self.is_kernel = is_kernel
        self.indices = IndexReader(names, self.code)
        self.masks = MaskReader(self.indices, self._condition, self.bound)
        self.extents: dict[str, dict[int, Cut]] = {}
        self.shapes: dict[str, list[str]] = {}
        self.needs: set[str] = set()
        self.left: list[tuple[cst.CSTNode, str]] = []
        self.definitions: dict[str, cst.BaseSmallStatement] = {}
        self.orphans: list[cst.EmptyLine] = []
        self.scopes: list[dict[str, str]] = [{}]
        self.depths: dict[str, int] = {}
        self.slices: dict[str, tuple[str, str]] = {}
        self.guards: dict[str, dict[str, None]] = {}
        self.conditions: set[str] = set()
        self.cut_sums: set[str] = set()
        self.guarding: set[cst.If] = set()
        self._used = used
        self._expression = expression
        self._emitted: list[str] = []
        self._bounds: dict[int, list[str]] = {}

    # --- texts

    def text(self, node: cst.CSTNode) -> str:
        """As it stands in the file."""
        return self.module.code_for_node(node)

    def one_line(self, node: cst.CSTNode) -> str:
        """As it stands in the file, without line breaks and comments."""
        return re.sub(r"\s*\n\s*", " ", re.sub(r"#[^\n]*", "", self.text(node))).strip()

    def expr(self, node: Any) -> Any:
        """An expression in today's language."""
        return self._expression(self, node)

    def code(self, node: cst.BaseExpression) -> str:
        """The text of an expression in today's language, on one line."""
        return self.one_line(self.expr(node))

    def parse(self, text: str) -> Any:
        """The statement of a text."""
        return cst.parse_statement(wrapped(text, self.module.default_indent), config=self.module.config_for_parsing)

    # --- names

    def nl(self, name: str) -> str:
        """A name of ``nki.language``, as this file spells it."""
        return f"{self._alias('nl')}.{name}"

    def nisa(self, name: str) -> str:
        """A name of ``nki.isa``, as this file spells it."""
        return f"{self._alias('nisa')}.{name}"

    def _alias(self, package: str) -> str:
        today = _MODULES[package]
        for name, dotted in self.names.bound.items():
            if dotted.endswith(today) or dotted == today.replace("nki.", "nki.beta1."):
                return name
        self.needs.add(package)
        return package

    def dtype(self, node: cst.BaseExpression) -> str:
        """A dtype; what the first NKI calls a bool has 8 bits."""
        text = self.code(node)
        return self.nl("uint8") if text in ("bool", "np.bool_") else text

    def fresh(self, base: str) -> str:
        """A name that the file does not use."""
        name, number = base, 1
        while name in self._used:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        return name

    # --- statements in front of this one

    def emit(self, *texts: str) -> None:
        """Put statements in front of what becomes of this one."""
        self._emitted += texts

    def taken(self) -> list[str]:
        """The statements that were put in front; they are not any more."""
        texts, self._emitted = self._emitted, []
        return texts

    def taken_bounds(self) -> list[str]:
        """The sizes that were given names in this block; they are not any more."""
        return self._bounds.pop(len(self.scopes) - 1, [])

    def put_back(self, texts: list[str]) -> None:
        """Make what was taken the statements in front again."""
        self._emitted = texts

    def _condition(self, node: cst.BaseExpression) -> str:
        """A condition of a mask; one that may be None holds then."""
        text = self.code(node)
        optional = text not in self.conditions and any(fact.kind == "none" for fact in self.facts.of(node))
        return f"({text} is None or {text})" if optional else text

    def bound(self, key: int, text: str) -> str:
        """The name of a variable with the value of a text, for the bound of an axis.

        It is assigned where all that is in the text has its value.
        """
        for scope in reversed(self.scopes):
            if text in scope:
                return scope[text]
        kind = "size" if text.startswith("min") else "first"
        name = self.fresh(f"p_{kind}" if key == 0 else f"f_{kind}")
        depth = max((self.depths.get(each, 1) for each in re.findall(r"(?<![\w.])[^\W\d]\w*", text)), default=1)
        depth = min(depth, len(self.scopes) - 1)
        self._bounds.setdefault(depth, []).append(f"{name} = {text}")
        self.scopes[depth][text] = name
        self.depths[name] = depth
        return name

    def parts_of_bound(self, name: str) -> set[str]:
        """What the variable of that name is the smaller one of."""
        texts = [text for scope in self.scopes for text, made in scope.items() if made == name]
        return {part.strip() for text in texts for part in text.removeprefix("min(").removesuffix(")").split(", ")}

    def forget(self, name: str) -> None:
        """A name has another value from here on."""
        pattern = re.compile(rf"\b{re.escape(name)}\b")
        for scope in self.scopes:
            for text in [text for text in scope if pattern.search(text)]:
                del scope[text]
        for other in [key for key, texts in self.slices.items() if key == name or pattern.search(" ".join(texts))]:
            del self.slices[other]

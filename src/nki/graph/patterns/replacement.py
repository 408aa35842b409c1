"""The call of a pattern's kernel in the place of what the pattern found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki.core.dtypes import bool_
from nki.core.errors import NkiError
from nki.core.source import Location
from nki.driver.compile import compiled
from nki.driver.prepare import prepare
from nki.graph.errors import GraphError
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.context import GraphContext
from nki.graph.passes.rewriter import Rewriter
from nki.graph.patterns.pattern import Match
from nki.graph.patterns.registry import Origin
from nki.graph.references import TARGET, Reference, register


@dataclass(frozen=True, slots=True)
class Replacement:
    """A pattern as the passes use it."""

    origin: Origin

    @property
    def name(self) -> str:
        """The pattern's."""
        return self.origin.pattern.name

    def replaced(self, r: Rewriter, op: Op, context: GraphContext) -> Sequence[Value] | None:
        """What the kernel makes, in place of the operation's results; None if the pattern finds nothing.

        Raises:
            GraphError: "graph.pattern" for a matcher or a kernel that fails, and for a kernel that returns something
                else than what it replaces.
            NkiError: what compiling the kernel raises.
        """
        with self._guarded("its matcher", op.location):
            found = self.origin.pattern.match(r, op)
        if found is None:
            return None
        if not isinstance(found, Match):
            raise self._refused(f"its matcher returns a {type(found).__name__}", op.location)
        with self._guarded("its kernel", op.location):
            reference = self._compiled(found, context)
        return self._called(r, op, found, reference)

    def _compiled(self, found: Match, context: GraphContext) -> Reference:
        kernel = self.origin.pattern.kernel
        arrays = tuple(_stand_in(value) for value in found.inputs)
        facts, target = dict(found.facts), context.target.name
        made = compiled(prepare(kernel, arrays, facts, context.options, "compiled", target=target, cache={}))
        reference = register(made.kernel_hash, kernel.func.__name__, made.programs)
        context.references.append(reference)
        return reference

    def _called(self, r: Rewriter, op: Op, found: Match, reference: Reference) -> tuple[Value, ...]:
        made = [TensorType(tuple(buffer.shape), buffer.dtype) for buffer in reference.programs[0].outputs]
        types = [value.type for value in found.outputs]
        if found.finish is None:
            same = [(kind.shape, kind.dtype) for kind in made] == [(kind.shape or (1,), kind.dtype) for kind in types]
            made = types if same else made
        config = {"func_name": reference.name, "klir_binary": {"binary": reference.key}}
        attributes = {"call_target_name": TARGET, "backend_config": config}
        values: Sequence[Value] = r.op("custom_call", found.inputs, made, attributes)
        if found.finish is not None:
            with self._guarded("what it makes of the kernel's results", op.location):
                values = found.finish(r, values)
        if found.outputs != op.results or [value.type for value in values] != types:
            returned = ", ".join(f"{kind.dtype}{list(kind.shape)}" for kind in made)
            raise self._refused(f"its kernel returns {returned} for {', '.join(map(str, types))}", op.location)
        return tuple(values)

    @contextmanager
    def _guarded(self, part: str, where: Location) -> Iterator[None]:
        """Failures without a code get one, and errors of the kernel say which pattern wanted it."""
        try:
            yield
        except NkiError as error:
            error.add_note(f"{self.origin} wanted this kernel for {where}")
            error.facts["pattern"] = str(self.origin)
            raise
        except (Warning, MemoryError):  # warnings are errors where the user wants that
            raise
        except Exception as error:
            raise self._refused(f"{part} raises {type(error).__name__}: {error}"[:400], where) from error

    def _refused(self, what: str, where: Location) -> GraphError:
        return GraphError(
            "graph.pattern",
            f"{self.origin}: {what}",
            rule="a kernel returns what it replaces: same shapes, same dtypes, all results of the operation",
            fix="let the pattern match only what the kernel can compute, or leave its name out of patterns=[...]",
            location=where,
        )


def _stand_in(value: Value) -> Any:
    """An array of the value's type without memory of its own: kernels are traced for shapes and dtypes."""
    stored = np.dtype(np.uint8) if value.type.dtype is bool_ else value.type.dtype.numpy
    return np.broadcast_to(np.zeros((), stored), value.type.shape or (1,))

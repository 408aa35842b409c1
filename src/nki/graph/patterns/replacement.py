"""The call of a pattern's kernel in the place of what the pattern found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nki.core.dtypes import bool_
from nki.core.errors import NkiError
from nki.core.source import Location
from nki.driver.compile import compiled
from nki.driver.measure import question, times_of
from nki.driver.prepare import Prepared, prepare
from nki.graph.errors import GraphError
from nki.graph.ir import Op, TensorType, Value
from nki.graph.passes.context import GraphContext, Near, Replaced
from nki.graph.passes.regions import outside_values
from nki.graph.passes.rewriter import Rewriter
from nki.graph.patterns.choice import Cut, Slower, TimeOf, Times, cut_out, own_time, remember, remembered
from nki.graph.patterns.pattern import Match, NearMiss
from nki.graph.patterns.registry import Origin
from nki.graph.references import TARGET, Reference, register
from nki.store.keys import key_of


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """A pattern as the passes of one compilation use it.

    Attributes:
        code: what tells it from patterns of other code or of another version.
        lasting: whether that holds in other processes, too.
        references: its compiled kernels, by what they were compiled for.
        refused: what its kernel said about arguments that it does not take, by what it was to be compiled for.
    """

    origin: Origin
    code: str
    lasting: bool
    references: dict[str, Reference] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

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
        first, where = len(r.written), str(op.location)
        try:
            found = self._found(r, op)
            if found is not None:
                values, times = self._chosen(r, op, found, first, context)
                context.replaced.append(Replaced(self.name, where, *times))
                count = len(op.results)
                r.replace(found.outputs[count:], values[count:])
                return values[:count]
        except NearMiss as miss:
            times = miss.times if isinstance(miss, Slower) else ()
            context.near.append(Near(self.name, where, str(miss), *times))
        r.undo(first)
        return None

    def _found(self, r: Rewriter, op: Op) -> Match | None:
        with self._guarded("its matcher", op.location):
            found = self.origin.pattern.match(r, op)
        if found is not None and not isinstance(found, Match):
            raise self._refused(f"its matcher returns a {type(found).__name__}", op.location)
        others = () if found is None else found.outputs[len(op.results) :]
        after = r.dependents(others)
        late = {*others, *(result for each in after for result in each.results)}
        if found is not None and not late.isdisjoint(found.inputs):
            raise NearMiss("some of its results are needed for others of them")
        if any(not set(outside_values(each)) <= set(each.operands) for each in after):
            raise NearMiss("some of its results are used in a loop or a branch before others are made")
        return found

    def _chosen(
        self, r: Rewriter, op: Op, found: Match, first: int, context: GraphContext
    ) -> tuple[Sequence[Value], Sequence[float | None]]:
        """The kernel's call, and what the part takes with it and without. Raises NearMiss if it is not worth it."""
        if self.origin.pattern.choose == "always" or context.time_of is None:
            return self._called(r, op, found, self._reference(op, found, context)), ()
        cut, later = cut_out(r, op, found, first), self._later(context)
        key = key_of(
            "choice",
            part=cut.own.digest(found.inputs),
            facts=_written(found),
            patterns=[each.code for each in (self, *later)],
            timed_as=context.timed_as,
        )
        times = remembered(key)
        if times is None:
            times = self._timed(r, op, found, cut, context, partial(context.time_of, patterns=later))
            remember(key, times, all(each.lasting for each in (self, *later)))
        if not times.faster:
            raise Slower(times, cut.others)
        if times.own_ns is not None and key in context.left_out:
            raise Slower(Times(*context.left_out[key]), whole=" as a whole, if not by itself")
        context.used[key] = times
        return self._called(r, op, found, self._reference(op, found, context)), times

    def _later(self, context: GraphContext) -> list[Replacement]:
        """The patterns that come after this one: the part is for them where this one leaves it."""
        each = [pattern for pattern in context.patterns if isinstance(pattern, Replacement)]
        return each[each.index(self) + 1 :] if self in each else []

    def _timed(self, r: Rewriter, op: Op, found: Match, cut: Cut, context: GraphContext, time_of: TimeOf) -> Times:
        """What the part takes with the kernel and without; a kernel that is slower by itself is not put in."""
        with self._of_kernel(op, found):
            asked = question(self._prepared(found, context))
            alone = max(core.spent.ns for core in times_of(asked)) if context.lnc == 1 else 0.0
        own = own_time(cut.own, time_of)
        if own is not None and alone >= own:
            return Times(alone, own)
        first = len(r.written)
        values = self._called(r, op, found, self._reference(op, found, context))
        ns = time_of(cut.with_kernel(r, values).module())
        r.undo(first)
        return Times(ns, own)

    def _reference(self, op: Op, found: Match, context: GraphContext) -> Reference:
        """The kernel for a match, compiled once for all that are alike."""
        key = _written(found)
        reference = self.references.get(key)
        if reference is None:
            with self._of_kernel(op, found):
                made = compiled(self._prepared(found, context))
            name = self.origin.pattern.kernel.func.__name__
            reference = self.references[key] = register(made.kernel_hash, name, made.programs)
            context.references.append(reference)
        return reference

    @contextmanager
    def _of_kernel(self, op: Op, found: Match) -> Iterator[None]:
        """Failures of the kernel; what it refuses, or has no room for if nobody insists on it, is a near miss."""
        key, pattern = _written(found), self.origin.pattern
        if key in self.refused:
            raise NearMiss(self.refused[key])
        try:
            with self._guarded("its kernel", op.location):
                yield
        except NkiError as error:
            without_room = pattern.choose == "faster" and error.code in _WITHOUT_ROOM
            if not (without_room or isinstance(error, pattern.refuses)):
                raise
            self.refused[key] = f"the kernel refuses it: {error.message}"
            raise NearMiss(self.refused[key]) from error

    def _prepared(self, found: Match, context: GraphContext) -> Prepared:
        arrays = tuple(_stand_in(value) for value in found.inputs)
        kernel, target = self.origin.pattern.kernel, context.target.name
        return prepare(kernel, arrays, dict(found.facts), context.options, "compiled", target=target, cache={})

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
        first, before = found.outputs[: len(op.results)], found.outputs[len(op.results) :]
        known = first == op.results and all(r.maker(value) is not None for value in before)
        if not known or [value.type for value in values] != types:
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
        except (NearMiss, Warning, MemoryError):  # warnings are errors where the user wants that
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


_WITHOUT_ROOM = frozenset({"tensor.capacity", "memory.capacity"})


def _written(found: Match) -> str:
    """What a kernel is compiled for."""
    return repr(([str(value.type) for value in found.inputs], sorted(found.facts.items())))


def _stand_in(value: Value) -> Any:
    """An array of the value's type without memory of its own: kernels are traced for shapes and dtypes."""
    stored = np.dtype(np.uint8) if value.type.dtype is bool_ else value.type.dtype.numpy
    return np.broadcast_to(np.zeros((), stored), value.type.shape or (1,))

"""One instruction, declared once: signature, operands, rules and body; everything else reads this object."""

from __future__ import annotations

import inspect
import typing
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any, Generic, ParamSpec

from nki.core.calls import misfit, spelled
from nki.core.dtypes import DType
from nki.core.errors import ArgumentError
from nki.core.locks import cached_property
from nki.core.names.removed_table import MIGRATE
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import one_line, shown
from nki.core.source import GENERATED, Location
from nki.core.tensor import NKIObject
from nki.spec.arrays import Arrays
from nki.spec.convert import Parameter, Prepare, prepare_of
from nki.spec.documented import documented
from nki.spec.engine import engine as Engine
from nki.spec.functional import Functional, functional
from nki.spec.implicit import allocated, told
from nki.spec.no_tensor import NoTensor
from nki.spec.operand import Operand
from nki.spec.program import Issued
from nki.spec.rule import Rule
from nki.spec.signature import Key, Seen, Signature, add, known, remember
from nki.spec.sink import Sink, current_sink
from nki.spec.step import Cost
from nki.spec.verify import verify
from nki.target.model import Target

_new = object.__new__
_new_tuple = tuple.__new__  # what the constructor of a named tuple calls

P = ParamSpec("P")
Body = Callable[[Any, Arrays], None]
EngineChoice = Callable[[Any, Target], Engine]
Effects = tuple[str, ...] | Callable[[Any], tuple[str, ...]]

EFFECTS = ("accumulator", "random", "print", "rendezvous", "ranks", "fence")
"""What instructions share beside memory and registers, so that they keep their order: the accumulator registers of the
engine, its random generator, the printed output, meetings with the other core, meetings with other ranks, and memory
that is not an operand. Only the other core shares memory, so that only "rendezvous" orders accesses to it."""


@dataclass(frozen=True, slots=True)
class Deprecated:
    """A keyword that older versions had.

    Attributes:
        name: the keyword.
        instead: what to write today.
        accept: ``(value, bound arguments) -> bool``: whether the old meaning still comes out right without it.
        problem: what is wrong if it is not accepted.
        today: the argument that has its place, or "" if none has.
    """

    name: str
    instead: str
    accept: Callable[[Any, dict[str, Any]], bool]
    problem: str
    today: str = ""


class NkiInstruction(NoTensor, NKIObject):
    """Handle of an issued instruction."""

    __slots__ = ("issued",)

    def __init__(self, handle: Issued) -> None:
        self.issued = handle

    @classmethod
    def of(cls, issued: Issued) -> NkiInstruction:
        """The handle of an issued instruction."""
        handle = object.__new__(cls)
        handle.issued = issued
        return handle

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """This instruction runs after every producer has completed; returns itself, so that calls can be chained.

        Both ends are in the same device loop, or both outside of every one (Python loops do not count).

        Raises:
            ArgumentError: a producer is no instruction (``schedule.producer``).
            FrontendError: an edge into or out of a device loop (``schedule.loop``), or to itself (``schedule.self``).
        """
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                raise ArgumentError(
                    "schedule.producer",
                    f"depends_on got {shown(producer)}",
                    rule="a producer is what an instruction of nki.isa returned",
                    source="nki/api/nki/isa NkiInstruction.depends_on",
                    fix="keep the handle: a = nisa.tensor_copy(...), then b.depends_on(a)",
                )
        current_sink("depends_on").depend(self.issued, [producer.issued for producer in producers])
        return self

    def __repr__(self) -> str:
        return f"NkiInstruction({self.issued.instruction.name})"


@shown.register
def _(value: NkiInstruction) -> str:
    return f"the result of {value.issued.instruction.label}"


class Instruction(Generic[P]):
    """A declared instruction; calling it inside a kernel issues it.

    Attributes:
        name: public name in nki.isa or nki.collectives.
        label: the name as messages print it.
        operands: by name, in the order of the signature.
        arguments: named tuple class with the same fields.
        engines: engines that can run it, the default first.
        rules: what must hold beyond the operands' types.
        feature: name of the target feature that it needs, or "".
        source: the document that defines it.
        public: whether it is part of nki.isa.
        moves_bits: whether it moves storage bits without arithmetic, so that packed dtypes may pass.
        nullable: the arguments that may be None.
        steps: what it costs, or None for instructions that take no time on any unit.
        effects: what it touches beside its operands, see `EFFECTS`.
        before: a version of the interface, and what a kernel of an older one issues in its place.
    """

    def __init__(  # noqa: PLR0913 - one parameter for each part of a declaration
        self,
        function: Callable[P, Any],
        engines: Sequence[Engine],
        choose: EngineChoice | None,
        rules: Sequence[Rule],
        feature: str,
        source: str,
        deprecated: Sequence[Deprecated],
        public: bool,
        moves_bits: bool,
        steps: Cost | None,
        effects: Effects,
        before: tuple[str, Instruction[P]] | None = None,
    ) -> None:
        self.name = function.__name__
        self.label = f"{'nki.collectives' if '.collectives.' in function.__module__ else 'nisa'}.{self.name}"
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__signature__ = inspect.signature(function)
        self.engines = tuple(engines)
        self.__doc__ = documented(function.__doc__, self.__signature__.parameters, self.engines)
        self.choose = choose
        self.rules = tuple(rules)
        self.feature = feature
        self.source = source
        self.deprecated = {item.name: item for item in deprecated}
        self.public = public
        self.moves_bits = moves_bits
        self.steps = steps
        self._effects = effects
        self.before = before
        if before is not None:
            before[1].label = self.label  # it is what the kernel calls
        parameters = self.__signature__.parameters
        hints = _hints(function, parameters)
        self.operands = {name: _operand(function, name, hint) for name, hint in hints.items()}
        self.tensor_positions = tuple(
            (position, name) for position, (name, operand) in enumerate(self.operands.items()) if operand.is_tensor
        )
        self.written_positions = tuple(at for at, name in self.tensor_positions if self.operands[name].writes)
        self.read_positions = tuple(at for at, name in self.tensor_positions if self.operands[name].reads)
        self.nullable = frozenset(n for n in self.operands if _takes_none(hints[n], parameters[n].default))
        self.execute: Body = _no_body(self.name)

    def body(self, function: Body) -> Body:
        """Decorator for the function that computes the instruction."""
        self.execute = function
        return function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NkiInstruction:
        sink = current_sink(self.label)
        if self.before is not None and sink.options.api < self.before[0]:
            return self.before[1](*args, **kwargs)
        try:
            values = self._bind(*args, **kwargs)
        except TypeError:
            made = self._implicit(args, kwargs, sink)
            if made is not None:
                return made
            values = self._bind_old(args, kwargs)
        try:
            arguments, key = self._prepare(values, sink)
        except ArgumentError:
            old = self._functional(args, kwargs)
            if old is None or not old.certain:
                raise
            made = self._implicit(args, kwargs, sink)
            if made is not None:
                return made
            raise old.error(self.label) from None
        signature = None if key is None else known(key)
        if signature is None:
            issued, signature = self._verified(arguments, key, sink)
        else:
            issued = _new_tuple(Issued, (self, arguments, sink.locator.capture(), signature.engine))
        sink.issue(issued, signature)
        handle: NkiInstruction = _new(NkiInstruction)
        handle.issued = issued
        return handle

    def unissued(self, **kwargs: Any) -> tuple[Issued, Signature | None]:
        """The verified record of a call with all arguments by keyword, and its signature, if no rule was broken.

        Who calls it issues the record later, or never.

        Raises:
            NkiError: as the call does.
        """
        sink = current_sink(self.label)
        if self.before is not None and sink.options.api < self.before[0]:
            return self.before[1].unissued(**kwargs)
        arguments, key = self._prepare(self._bind(**kwargs), sink)
        signature = None if key is None else known(key)
        if signature is None:
            return self._verified(arguments, key, sink)
        return Issued(self, arguments, sink.locator.capture(), signature.engine), signature

    # What is compiled for an instruction waits for its first call: most programs use few of them.

    @cached_property
    def arguments(self) -> Any:
        """The named tuple class that holds arguments."""
        return namedtuple(self.name, list(self.operands))

    @cached_property
    def _bind(self) -> Callable[..., tuple[Any, ...]]:
        return _binder(self.__signature__)

    @cached_property
    def _prepare(self) -> Prepare:
        parameters = self.__signature__.parameters
        return prepare_of(
            self,
            self.arguments,
            [Parameter(n, o, parameters[n].default, n in self.nullable) for n, o in self.operands.items()],
        )

    def _verified(self, arguments: Any, key: Key | None, sink: Sink) -> tuple[Issued, Signature | None]:
        """The record, after all rules were checked; its signature if none was broken."""
        target, disabled = sink.target, sink.options.disabled_rules
        issued = Issued(self, arguments, sink.locator.capture(), self.engine_for(arguments, target))
        findings = verify(issued, target, disabled)
        for finding in findings:
            sink.report(finding)
        if key is None or findings or disabled:
            return issued, None
        return issued, remember(key, target, arguments, issued.engine)

    def again(self, arguments: Any, location: Location, sink: Sink) -> tuple[Issued, Signature | None] | None:
        """The record of an issued instruction with other arguments, and its signature; None if they break a rule."""
        target, disabled = sink.target, sink.options.disabled_rules
        key: list[Any] = [self, id(target), Instruction.again]
        seen: Seen = {}
        named = zip(self.operands, arguments, strict=True)
        static = all([add(key, value, seen) for name, value in named if name != "name"])
        signature = known(tuple(key)) if static else None
        if signature is not None:
            return Issued(self, arguments, location, signature.engine), signature
        issued = Issued(self, arguments, location, self.engine_for(arguments, target))
        findings = verify(issued, target, disabled)
        if any(finding.severity == "error" for finding in findings):
            return None
        if findings or disabled or not static:
            return issued, None
        return issued, remember(tuple(key), target, arguments, issued.engine)

    def effects(self, arguments: Any) -> tuple[str, ...]:
        """Names of `EFFECTS` that an instruction with these arguments has."""
        return self._effects(arguments) if callable(self._effects) else self._effects

    def exists_on(self, target: Target) -> bool:
        """Whether the target has this instruction."""
        return not self.feature or target.has(self.feature)

    def engine_for(self, arguments: Any, target: Target) -> Engine:
        """The engine that runs these operands: the one asked for, else the choice of the declaration."""
        asked = getattr(arguments, "engine", Engine.unknown) if "engine" in self.operands else Engine.unknown
        if asked is not Engine.unknown:
            return asked
        return self.choose(arguments, target) if self.choose else self.engines[0]

    def signature(self) -> str:
        """``name(dst, src, name=None)`` for messages and documents."""
        return f"{self.name}({spelled(self.__signature__)})"

    def __repr__(self) -> str:
        return f"<instruction {self.label}>"

    def __get__(self, instance: object, owner: type | None = None) -> Instruction[P]:
        """The instruction, as an attribute of a class too; `help` shows the signature of what has this method."""
        return self

    def _implicit(self, args: tuple[Any, ...], kwargs: dict[str, Any], sink: Sink) -> Any:
        """The new tile that a call without `dst` writes to, which is told; None if it is no such call."""
        old = self._functional(args, kwargs)
        tile = None if old is None else old.tile(self.name)
        if old is None or tile is None:
            return None
        result = allocated(tile, sink)
        self(dst=result, **old.inputs)  # type: ignore[arg-type, call-arg] # bound by what is looked for
        if "call.implicit-destination" not in sink.options.disabled_rules:
            sink.report(told(self.label, tile, old.call))
        return result

    def _bind_old(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Accept deprecated keywords with a warning; everything else that does not bind is an error with a remedy."""
        old = {name: kwargs[name] for name in kwargs if name in self.deprecated}
        moved = {today: value for name, value in old.items() if (today := self.deprecated[name].today)}
        rest = moved | {name: value for name, value in kwargs.items() if name not in old}
        try:
            values = self._bind(*args, **rest)
        except TypeError:
            raise self._argument_error(args, rest) from None
        bound = dict(zip(self.operands, values, strict=True))
        for name, value in old.items():
            item = self.deprecated[name]
            if not item.accept(value, bound):
                raise ArgumentError(
                    "call.deprecated",
                    f"{self.label}({name}={_spelled(value)}): {item.problem}",
                    rule=f"{name} was removed from {self.label}",
                    fix=item.instead,
                )
            warnings.warn(
                f"{self.label}: argument {name} is deprecated; {item.instead}", DeprecationWarning, stacklevel=3
            )
        return values

    def _argument_error(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ArgumentError:
        found = misfit(self.__signature__, args, kwargs)
        assert found is not None, "the binder has the same signature"
        old = self._functional(args, kwargs)
        if old is not None and old.certain:
            return old.error(self.label)
        message, rule = f"{self.label} {found.message}", f"{self.label}({spelled(self.__signature__)})"
        match found.kind:
            case "unknown":
                fix = (
                    f"slice the tensors instead; mask= was removed: {MIGRATE}"
                    if found.names == ("mask",)
                    else found.fix
                )
                return ArgumentError("call.unknown-argument", message, rule=rule, fix=fix)
            case "surplus":
                return ArgumentError("call.too-many", message, rule=rule, fix=found.fix)
            case "twice":
                return ArgumentError("call.twice", message, rule=rule, fix=found.fix)
            case "missing":
                fix = found.fix if old is None else f"{found.fix}; or if no argument is dst, write {old.call}"
                return ArgumentError("call.missing", message, rule=rule, fix=fix)

    def _functional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Functional | None:
        return functional(self.label, self.__signature__, self.operands, args, kwargs)


REGISTRY: dict[str, Instruction[Any]] = {}
"""All instructions by name, filled by their declarations: as many as there are."""


def instruction(  # noqa: PLR0913 - one parameter for each part of a declaration
    *,
    engines: Sequence[Engine],
    source: str,
    rules: Sequence[Rule] = (),
    choose: EngineChoice | None = None,
    feature: str = "",
    deprecated: Sequence[Deprecated] = (),
    public: bool = True,
    moves_bits: bool = False,
    steps: Cost | None = None,
    effects: Effects = (),
    before: tuple[str, Instruction[Any]] | None = None,
) -> Callable[[Callable[P, Any]], Instruction[P]]:
    """Declare an instruction: decorates a function with the public signature, whose docstring is the manual."""

    def declare(function: Callable[P, Any]) -> Instruction[P]:
        declared = Instruction(
            function, engines, choose, rules, feature, source, deprecated, public, moves_bits, steps, effects, before
        )
        assert declared.name not in REGISTRY, f"{declared.name} is declared twice"
        REGISTRY[declared.name] = declared
        return declared

    return declare


_HINTS: dict[tuple[str, Any], Any] = {}
"""By module and annotation; the declarations of a module share most annotations, and evaluating them takes a while."""


def _hints(function: Callable[..., Any], parameters: Iterable[str]) -> dict[str, Any]:
    """What the annotations of the parameters mean."""
    keys = {name: (function.__module__, function.__annotations__[name]) for name in parameters}
    missing = {name: key[1] for name, key in keys.items() if key not in _HINTS}
    holder = SimpleNamespace(__annotations__=missing)
    names = {"NkiTensor": NkiTensor, "Sequence": Sequence}
    for name, hint in typing.get_type_hints(holder, function.__globals__, names, include_extras=True).items():
        _HINTS[keys[name]] = hint
    return {name: _HINTS[key] for name, key in keys.items()}


def _takes_none(hint: Any, default: Any) -> bool:
    return default is None or type(None) in typing.get_args(getattr(hint, "__origin__", hint))


def _operand(function: Callable[..., Any], name: str, hint: Any) -> Operand:
    found = [item for item in _metadata(hint) if isinstance(item, Operand)]
    assert len(found) == 1, f"{function.__name__}: parameter {name} needs exactly one operand type"
    return found[0]


def _metadata(hint: Any) -> list[Any]:
    own = list(getattr(hint, "__metadata__", ()))
    return own + [item for part in typing.get_args(hint) if not isinstance(part, Operand) for item in _metadata(part)]


def _binder(signature: inspect.Signature) -> Callable[..., tuple[Any, ...]]:
    """A function with the same parameters that returns their values: Python's own argument binding."""
    names = list(signature.parameters)
    defaults = {name: p.default for name, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}
    text = ", ".join(f"{name}=defaults[{name!r}]" if name in defaults else name for name in names)
    code = compile(f"lambda {text}: ({', '.join(names)},)", GENERATED, "eval")
    binder: Callable[..., tuple[Any, ...]] = eval(code, {"defaults": defaults})
    return binder


def _spelled(value: Any) -> str:
    """An argument as it may stand in a call."""
    return one_line(repr(value)) if isinstance(value, bool | int | float | str | Enum | DType) else shown(value)


def _no_body(name: str) -> Body:
    def missing(arguments: Any, x: Arrays) -> None:
        raise AssertionError(f"instruction {name} was declared without a body")

    return missing


def issue_again(issued: Issued, sink: Sink) -> None:
    """Verify and issue an existing record on another sink (readers of IR use it)."""
    for finding in verify(issued, sink.target, sink.options.disabled_rules):
        sink.report(finding)
    sink.issue(issued)

"""Records become MLIR text that StableHLO's parser and verifier accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nki.core.origin import Origin
from nki.core.source import Frame, Location
from nki.graph.ir import Function, Group, Module, Op, Region, TensorType, Value
from nki.graph.stablehlo.attributes import encode_attributes, quote
from nki.graph.stablehlo.names import GROUP_NAME, KIND, MODULES, OPERATION
from nki.graph.stablehlo.types import mlir_dtype


def write(module: Module) -> str:
    """MLIR text of a model; `nki.graph.stablehlo.read.read` of it gives the same model.

    A group becomes a private function with the attribute ``nki.kind`` and a call of it.
    """
    writer = _ModulePrinter(module)
    body = [writer.function(function) for function in module.functions.values()]
    return "\n".join([*writer.aliases, "module {", *body, *writer.groups, "}"]) + "\n"


class _ModulePrinter:
    """One module. `aliases` are the locations, which operations repeat; `groups` the functions of groups."""

    def __init__(self, module: Module) -> None:
        self.aliases: list[str] = []
        self.groups: list[str] = []
        self._names: dict[Value, str] = {}
        self._places: dict[Any, str] = {}
        self._taken = set(module.functions)
        self._entry = module.entry

    def function(self, function: Function) -> str:
        visibility = "public" if function.name == self._entry else "private"
        attributes = {k: v for k, v in function.attributes.items() if k != "sym_visibility"}
        return self._function(function, visibility, attributes)

    def _function(self, function: Function, visibility: str, attributes: Mapping[str, Any]) -> str:
        self._names = {}
        arguments = ", ".join(
            f"{self._new(value)}: {spell(value.type)}{_dictionary('', _at(function.argument_attributes, number))}"
            + (f" loc({quote(value.name)})" if value.name else "")
            for number, value in enumerate(function.arguments)
        )
        results = ", ".join(
            spell(value.type) + _dictionary("", _at(function.result_attributes, number))
            for number, value in enumerate(function.results)
        )
        lines = [f"func.func {visibility} @{symbol(function.name)}({arguments}) -> ({results})"
                 f"{_dictionary('', attributes, ' attributes')} {{"]  # fmt: skip
        for item in function.body:
            lines += self._group(item) if isinstance(item, Group) else self._op(item)
        lines += [f"  {self._return('func', function.results)}", "}"]
        return "\n".join(lines)

    def _group(self, group: Group, indent: str = "  ") -> list[str]:
        number = len(self.groups)
        while f"group_{number}" in self._taken:
            number += 1
        name = f"group_{number}"
        self._taken.add(name)
        self.groups.append("")
        names = self._names
        body = Function(name, group.inputs, list(group.ops), group.outputs)
        self.groups[-1] = self._function(body, "private", {KIND: group.kind, GROUP_NAME: group.name})
        self._names = names
        call = Op("call", group.inputs, group.outputs, {"callee": name}, (), group.location)
        return self._op(call, indent)

    def _op(self, op: Op, indent: str = "  ") -> list[str]:
        operands = ", ".join(self._names[value] for value in op.operands)
        regions = [self._region(region, indent) for region in op.regions]
        nested = f" ({', '.join(regions)})" if regions else ""
        types = f"({', '.join(spell(v.type) for v in op.operands)}) -> ({', '.join(spell(v.type) for v in op.results)})"
        results = ", ".join(self._new(value) for value in op.results)
        attributes = encode_attributes(op.name, op.attributes)
        body = ", ".join(f"{quoted(name)} = {text}" for name, text in attributes.items())
        text = f'{indent}{results}{" = " if results else ""}"{full_name(op.name)}"({operands})'
        return [f"{text}{nested}{f' {{{body}}}' if body else ''} : {types}{self._loc(op.location)}"]

    def _region(self, region: Region, indent: str) -> str:
        inner = indent + "  "
        arguments = ", ".join(f"{self._new(value)}: {spell(value.type)}" for value in region.arguments)
        lines = [f"{inner}^bb0({arguments}):"] if arguments else []
        for item in region.ops:
            lines += self._group(item, inner) if isinstance(item, Group) else self._op(item, inner)
        lines.append(inner + self._return("stablehlo", region.results))
        return "{\n" + "\n".join(lines) + f"\n{indent}}}"

    def _return(self, dialect: str, values: Sequence[Value]) -> str:
        names = ", ".join(self._names[value] for value in values)
        return f'"{dialect}.return"({names}) : ({", ".join(spell(v.type) for v in values)}) -> ()'

    def _new(self, value: Value) -> str:
        name = self._names[value] = f"%{len(self._names)}"
        return name

    def _loc(self, location: Location) -> str:
        place = self._place(location.frames) if location.frames else "unknown"
        return f" loc({place if location.origin is None else self._origin(location.origin, place)})"

    def _origin(self, origin: Origin, place: str) -> str:
        """A line with what it belongs to, see `nki.graph.stablehlo.names.MODULES`."""
        found = self._places.get((origin, place))
        if found is None:
            modules = ", ".join(f"[{quote(path)}, {quote(kind)}]" for path, kind in origin.modules)
            text = f"fused<{{{MODULES} = [{modules}], {OPERATION} = {quote(origin.operation)}}}>[{place}]"
            found = self._places[origin, place] = self._alias(text)
        return found

    def _place(self, frames: tuple[Frame, ...]) -> str:
        found = self._places.get(frames)
        if found is None:
            found = self._frame(frames[0])
            if len(frames) > 1:
                found = self._alias(f"callsite({found} at {self._place(frames[1:])})")
            self._places[frames] = found
        return found

    def _frame(self, frame: Frame) -> str:
        found = self._places.get(frame)
        if found is None:
            place = f"{quote(frame.file)}:{frame.line}:{frame.column + 1}"
            if frame.end_line:
                place += f" to {frame.end_line}:{frame.end_column + 1}"
            text = f"{quote(frame.function)}({place})" if frame.function else place
            found = self._places[frame] = self._alias(text)
        return found

    def _alias(self, text: str) -> str:
        name = f"#loc{len(self.aliases)}"
        self.aliases.append(f"{name} = loc({text})")
        return name


def spell(kind: TensorType) -> str:
    """A type in MLIR."""
    return f"tensor<{'x'.join((*map(str, kind.shape), mlir_dtype(kind.dtype)))}>"


def full_name(name: str) -> str:
    """An operation's name with its dialect."""
    if name == "call":
        return "func.call"
    return name if "." in name else f"stablehlo.{name}"


def symbol(name: str) -> str:
    """A function's name behind the @."""
    plain = name.replace("_", "a").replace(".", "a").replace("$", "a")
    return name if plain.isalnum() and plain.isascii() and not name[0].isdigit() else quote(name)


def quoted(name: str) -> str:
    """An attribute's name, in quotes where the syntax wants them."""
    plain = name.replace("_", "a").replace(".", "a").replace("$", "a")
    return name if plain.isalnum() and plain.isascii() and not name[0].isdigit() else quote(name)


def _at(items: Sequence[Mapping[str, Any]], number: int) -> Mapping[str, Any]:
    return items[number] if items else {}


def _dictionary(op: str, attributes: Mapping[str, Any], keyword: str = "") -> str:
    if not attributes:
        return ""
    body: Iterable[str] = (f"{quoted(k)} = {text}" for k, text in encode_attributes(op, attributes).items())
    return f"{keyword} {{{', '.join(body)}}}"

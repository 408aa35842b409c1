"""Tables of TOML as records: every value typed, every value with a source or marked as an estimate."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from nki.core.errors import TargetError
from nki.target.model import Provenance

_SOURCE = re.compile(r"(github\.com/)?[A-Za-z0-9_-]+(/[A-Za-z0-9_.-]+)*\.(rst|py|png|jpg|md)")
_LEAF_KEYS = frozenset({"value", "source", "estimate", "note"})
_OPEN_FIELDS = frozenset({"features", "timing", "collectives", "provenances"})

Leaves = dict[str, Provenance]
"""The origin of every value, by its path in the file."""


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """The tables of a file; `origin` names it in errors."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError("target.toml", f"{origin} is not TOML: {error}", fix="correct the file") from error


def read_values(cls: Any, table: Mapping[str, Any], path: str, leaves: Leaves, origin: str) -> dict[str, Any]:
    """The fields of a record from a table; `leaves` gets the origin of each."""
    values: dict[str, Any] = {}
    for item in fields(cls):
        below = f"{path}.{item.name}" if path else item.name
        if item.name in _OPEN_FIELDS:
            continue
        if "feature" in item.metadata:
            leaves[below] = leaves[f"features.{item.metadata['feature']}"]
            values[item.name] = leaves[below].value
        elif is_dataclass(item.type):
            values[item.name] = read_section(item.type, table[item.name], below, leaves, origin)
        else:
            leaves[below] = read_leaf(table[item.name], item.type, below, origin)
            values[item.name] = leaves[below].value
    return values


def read_section(cls: Any, table: Any, path: str, leaves: Leaves, origin: str) -> Any:
    """A record from a table that has its keys and no other."""
    check_keys(table, [item.name for item in fields(cls) if "feature" not in item.metadata], path, origin)
    return cls(**read_values(cls, table, path, leaves, origin))


def check_keys(table: Any, names: Iterable[str], path: str, origin: str) -> None:
    """Raise unless `table` has these keys and no other."""
    require(isinstance(table, dict), origin, path, "must be a table")
    expected = set(names)
    missing, unknown = sorted(expected - table.keys()), sorted(table.keys() - expected)
    require(not missing, origin, path, f"misses {', '.join(missing)}")
    require(not unknown, origin, path, f"has unknown {', '.join(unknown)}")


def read_leaf(table: Any, kind: Any, path: str, origin: str) -> Provenance:
    """One value with its origin, of the type `kind`."""
    require(isinstance(table, dict) and "value" in table, origin, path, "must be { value = ..., source = ... }")
    unknown = sorted(table.keys() - _LEAF_KEYS)
    require(not unknown, origin, path, f"has unknown {', '.join(unknown)}")
    source, estimate, note = (table.get(key, "") for key in ("source", "estimate", "note"))
    for text in (source, estimate, note):
        require(isinstance(text, str), origin, path, "source, estimate and note are strings")
    require(bool(source) != bool(estimate), origin, path, "needs a source or an estimate, not both", "target.source")
    if source:
        require(_SOURCE.fullmatch(source) is not None, origin, path, f"source {source!r} is no path", "target.source")
    return Provenance(_typed(table["value"], kind, path, origin), source, estimate, note)


def _typed(value: Any, kind: Any, path: str, origin: str) -> Any:
    frozen = _frozen(value)
    if kind is float and type(frozen) is int:
        frozen = float(frozen)
    require(_KINDS[kind](frozen), origin, path, f"is {value!r}, not {_kind_name(kind)}")
    return frozen


def _kind_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not _is_tuple(kind) else str(kind)


def _is_tuple(kind: Any) -> bool:
    return str(kind).startswith("tuple[")


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _all(item: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: type(value) is tuple and all(item(one) for one in value)


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


def _is_rule(value: Any) -> bool:
    return type(value) is tuple and len(value) == 2 and _is(int)(value[0]) and _all(_is(int))(value[1])


_KINDS: dict[Any, Callable[[Any], bool]] = {
    bool: _is(bool),
    int: _is(int),
    float: _is(float),
    str: _is(str),
    tuple[str, ...]: _all(_is(str)),
    tuple[int, ...]: _all(_is(int)),
    tuple[tuple[str, ...], ...]: _all(_all(_is(str))),
    tuple[tuple[int, tuple[int, ...]], ...]: _all(_is_rule),
}


def require(holds: bool, origin: str, path: str, problem: str, code: str = "target.data") -> None:
    """Raise TargetError unless something holds of the value at `path`."""
    if not holds:
        raise TargetError(code, f"{origin}: {path or 'the file'} {problem}", fix="correct the target data")

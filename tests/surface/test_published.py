"""The package has every published name, with the published parameters, defaults and members."""

from __future__ import annotations

import importlib
import inspect
import tomllib
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import nki.isa as nisa
import nki.language as nl
from tests.together import together

PUBLISHED = tomllib.loads((Path(__file__).parent / "published.toml").read_text())
OLD_ENGINES = {"tensor", "vector", "scalar", "gpsimd", "unknown"}

# Where this package has more than the reference says, or cannot say the same.
DEVIATIONS = {
    # 0.6 has (fn, **kwargs), 0.7 adds keywords, this package adds api=.
    "nki.jit": "fn=None, *, compile_config=None, specialization_config=None, api=None, **kwargs",
    # The public handle takes the record of an instruction; the reference calls a handle opaque.
    "nki.isa.VirtualRegister.__init__": "self, state=None, frozen=False, trace=None, truth=None",
}


def rows(section: str) -> list[tuple[str, str, str]]:
    return [
        (module, name, text) for module, table in PUBLISHED.get(section, {}).items() for name, text in table.items()
    ]


FUNCTIONS = [*rows("functions"), *rows("methods"), *rows("functions_07")]


@together("module, name, parameters", FUNCTIONS)
def test_callable_has_the_published_parameters(module: str, name: str, parameters: str) -> None:
    label = f"{module}.{name}"
    live = parameters_of(find(module, name))
    wanted = DEVIATIONS.get(label, parameters)
    assert masked(live, wanted) == wanted
    if label in DEVIATIONS:
        assert set(parameters.split(", ")) <= set(live.split(", ")), "a deviation only adds"


@together(
    "kind, module, name",
    [(kind, m, n) for kind, table in PUBLISHED["names"].items() for m, names in table.items() for n in names],
)
def test_name_exists(kind: str, module: str, name: str) -> None:
    if kind == "property":
        assert isinstance(inspect.getattr_static(nl.tile_size, name.partition(".")[2]), property)
        return
    value = find(module, name)
    match kind:
        case "dtype":
            assert isinstance(value, nl.DType)
        case "buffer":
            assert isinstance(value, nl.MemoryRegion)
        case "class":
            assert inspect.isclass(value)
        case "exception":
            assert issubclass(value, Exception)


@pytest.mark.parametrize("name", PUBLISHED["enums"])
def test_enumeration_has_the_published_members(name: str) -> None:
    module, _, kind = name.rpartition(".")
    live = find(module, kind)
    assert issubclass(live, Enum)
    assert {member.name: member.value for member in live} == PUBLISHED["enums"][name]


@together("owner, name", [(owner, n) for owner, names in PUBLISHED["names_07"]["attributes"].items() for n in names])
def test_name_of_0_7_exists(owner: str, name: str) -> None:
    module, _, kind = owner.rpartition(".")
    value = getattr(importlib.import_module(module), kind) if kind[:1].isupper() else importlib.import_module(owner)
    assert hasattr(value, name)


def test_the_table_is_complete() -> None:
    """As many as the reference has, so that a lost line does not go unnoticed."""
    assert {m: len(t) for m, t in PUBLISHED["functions"].items()} == {
        "nki": 2, "nki.language": 103, "nki.isa": 52, "nki.collectives": 11,
    }  # fmt: skip
    assert {m: len(t) for m, t in PUBLISHED["methods"].items()} == {"nki.language": 21, "nki.isa": 3}
    assert len(PUBLISHED["enums"]) == 8


@pytest.mark.parametrize("name", sorted(OLD_ENGINES))
def test_old_engine_constants_warn(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"nisa\.engine\.{name}"):
        assert getattr(nisa, f"{name}_engine") is nisa.engine[name]


def test_every_public_function_of_collectives_is_documented() -> None:
    module = importlib.import_module("nki.collectives")
    assert [name for name in module.__all__ if not (getattr(module, name).__doc__ or "").strip()] == []


def find(module: str, name: str) -> Any:
    value = importlib.import_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for part in name.split("."):
            value = type(nl.tile_size) if part == "_TileSize" else getattr(value, part)
    return value


def parameters_of(function: Any) -> str:
    shown, keyword_only = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            shown.append("*")
            keyword_only = True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={text_of(parameter.default)}"
        shown.append(f"{stars}{parameter.name}{default}")
    return ", ".join(shown)


def text_of(default: Any) -> str:
    if isinstance(default, nl.MemoryRegion | nl.DType):
        return str(default)
    if isinstance(default, Enum):
        return f"{type(default).__name__}.{default.name}"
    return repr(default).removeprefix("nl.")


def masked(live: str, wanted: str) -> str:
    """A default that the reference leaves out as ``...`` is any."""
    parts = [p for p in wanted.split(", ") if p.endswith("=...")]
    for part in parts:
        name = part.partition("=")[0]
        live = ", ".join(part if item.partition("=")[0] == name else item for item in live.split(", "))
    return live

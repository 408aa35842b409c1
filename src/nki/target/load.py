"""Reading target data strictly: every value typed, every value with a source or marked as an estimate."""

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nki.core.errors import TargetError
from nki.target.leaves import Leaves, check_keys, parse_toml, read_leaf, read_values, require
from nki.target.model import Target
from nki.target.names import COLLECTIVE, FEATURES, TIMING
from nki.target.own import is_own, read_own

DEFAULT_TARGET = "trn3"
"""What the documented simulator uses when nothing else is said (nki/guides/nki_simulator.rst, "Target Platform")."""

_FOLDER = Path(__file__).resolve().parent


def load_target(name: str) -> Target:
    """The target of that name or alias; case does not matter. The same object every time.

    A name that ends with ``.toml`` is the path of a file with other coefficients, see `nki.target.own`.

    Raises:
        TargetError: unknown name (``target.unknown``), data that does not hold together, or a file that cannot be read
            (see `read_own`).
    """
    if is_own(name.strip()):
        return _own(name.strip())
    key = name.strip().lower()
    stem = key if key in _files() else _aliases().get(key)
    if stem is None:
        known = ", ".join(_describe(_load(target)) for target in target_names())
        close = get_close_matches(key, [*target_names(), *_aliases()], n=1)
        close = [each for each in (*target_names(), *_aliases()) if key.startswith(each)] or close
        fix = f"write {close[0]}; the targets are {known}" if close else f"use one of: {known}"
        raise TargetError("target.unknown", f"unknown target {name!r}", fix=fix, facts={"known": target_names()})
    return _load(stem)


def target_names(*, toys: bool = False) -> tuple[str, ...]:
    """Names of the hardware targets; with ``toys`` also of the targets that exist for tests only."""
    return tuple(stem for stem in _files() if toys or not _load(stem).toy)


def read_target(text: str, origin: str, calibration: str = "") -> Target:
    """A target from TOML text; ``origin`` names the file in errors.

    ``calibration`` is TOML text with leaves that belong to the table ``timing``: what was fitted to measurements.

    Raises:
        TargetError: invalid TOML (``target.toml``), a missing, unknown or mistyped key (``target.data``), a leaf
            without exactly one of source and estimate (``target.source``).
    """
    data = parse_toml(text, origin)
    if calibration:
        _calibrate(data, parse_toml(calibration, f"the calibration of {origin}"), origin)
    target = _read(data, origin)
    _check_consistent(target, origin)
    return target


def _own(name: str) -> Target:
    """A generation with the coefficients of a file; one object as long as the file is the same."""
    own = read_own(name)
    found = _OWN.get(own.name)
    if found is None:
        base = load_target(own.base)
        leaves: Leaves = {}
        timing = _stated(own.coefficients, "timing", TIMING, leaves, own.origin)
        collective = _stated(own.collective, "collective", COLLECTIVE, leaves, own.origin)
        found = _OWN[own.name] = replace(
            base,
            name=own.name,
            aliases=(),
            validated=False,  # published times were compared with other coefficients
            timing=MappingProxyType({**base.timing, **timing}),
            collectives=MappingProxyType(collective),
            provenances=MappingProxyType({**base.provenances, **leaves}),
        )
    return found


def _stated(
    coefficients: Mapping[str, Any], table: str, names: Mapping[str, str], leaves: Leaves, origin: str
) -> dict[str, float]:
    """The coefficients that a file of somebody's own states, of those that there are; `leaves` gets their origins."""
    unknown = sorted(coefficients.keys() - names.keys())
    require(not unknown, origin, "" if table == "timing" else table, f"has unknown {', '.join(unknown)}")
    values: dict[str, float] = {}
    for name, leaf in coefficients.items():
        path = f"{table}.{name}"
        leaves[path] = read_leaf(_leaf(leaf, path, origin), float, path, origin)
        number: Any = leaves[path].value
        values[name] = number
        require(isfinite(number) and number > 0.0, origin, path, f"is {number!r}, not a positive number")
    return values


_OWN: dict[str, Target] = {}
"""Targets of files that were read, by name: as many as files were named."""


def _calibrate(data: dict[str, Any], coefficients: Mapping[str, Any], origin: str) -> None:
    """Add the coefficients of a calibration to the table of times, which must not state them too."""
    require(isinstance(data.get("timing"), dict), origin, "timing", "must be a table")
    timing: dict[str, Any] = data["timing"]
    twice = sorted(timing.keys() & coefficients.keys())
    require(not twice, origin, "timing", f"states {', '.join(twice)}, which the calibration states too")
    timing |= {name: _leaf(leaf, f"timing.{name}", origin) for name, leaf in coefficients.items()}


def _leaf(leaf: Any, path: str, origin: str) -> dict[str, Any]:
    """A leaf of a calibration as one of a target."""
    require(isinstance(leaf, dict), origin, path, "must be a table")
    missing = sorted({"value", "unit", "meaning"} - leaf.keys())
    require(not missing, origin, path, f"misses {', '.join(missing)}")
    told = {key: value for key, value in leaf.items() if key in ("value", "source", "estimate")}
    if "fitted" in leaf:
        told["estimate"] = f"fitted {leaf['fitted']}"
    return {**told, "note": leaf["unit"]}


@cache  # files of the package, which do not change
def _files() -> Mapping[str, Path]:
    return MappingProxyType({path.stem: path for path in sorted(_FOLDER.glob("*.toml"))})


@cache  # one for each file of a generation, so that targets can be compared by identity
def _load(stem: str) -> Target:
    path = _files()[stem]
    fitted = _FOLDER / "calibration" / path.name
    calibration = fitted.read_text(encoding="utf-8") if fitted.exists() else ""
    target = read_target(path.read_text(encoding="utf-8"), path.name, calibration)
    require(target.name == stem, path.name, "name", f"is {target.name!r} in a file called {path.name}")
    return target


@cache  # files of the package, which do not change
def _aliases() -> Mapping[str, str]:
    return MappingProxyType({alias: stem for stem in _files() for alias in _load(stem).aliases})


def _describe(target: Target) -> str:
    return " = ".join((target.name, *target.aliases))


def _read(data: Mapping[str, Any], origin: str) -> Target:
    leaves: Leaves = {}
    check_keys(data, [f.name for f in fields(Target) if f.name not in ("collectives", "provenances")], "", origin)
    features = _names(data["features"], "features", FEATURES, bool, leaves, origin)
    values = read_values(Target, data, "", leaves, origin)
    timing = _names(data["timing"], "timing", TIMING, float, leaves, origin)
    values["features"] = frozenset(name for name, present in features.items() if present)
    values["timing"] = MappingProxyType(timing)
    values["collectives"] = MappingProxyType({})
    values["provenances"] = MappingProxyType(leaves)
    return Target(**values)


def _names(table: Any, path: str, names: Mapping[str, str], kind: Any, leaves: Leaves, origin: str) -> dict[str, Any]:
    check_keys(table, names, path, origin)
    for name in names:
        leaves[f"{path}.{name}"] = read_leaf(table[name], kind, f"{path}.{name}", origin)
    return {name: leaves[f"{path}.{name}"].value for name in names}


def _check_consistent(t: Target, origin: str) -> None:
    most = [count for count, _ in t.access.start_rules]
    checks = (
        ("psum.bytes_per_partition", t.psum.banks * t.psum.bank_bytes == t.psum.bytes_per_partition, "banks x bytes"),
        ("sbuf.usable_bytes_per_partition", t.sbuf.usable_bytes_per_partition <= t.sbuf.bytes_per_partition, "<= all"),
        ("access.start_rules", most == sorted(most) and most[-1:] == [t.partitions], "ascending up to partitions"),
        ("pe.rows", t.pe.rows == t.partitions, "one row per partition"),
        ("quadrant", t.partitions % t.quadrant == 0, "a divisor of partitions"),
        ("hbm.cores_per_stack", t.hbm.stacks * t.hbm.cores_per_stack == t.cores_per_device, "x stacks = cores"),
    )
    for path, holds, rule in checks:
        require(holds, origin, path, f"is {t.provenance(path).value!r} and must be: {rule}")

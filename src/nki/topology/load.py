"""The instances that are known: data with an origin of each value, read as that of targets is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

from nki.core.errors import TargetError
from nki.target.leaves import Leaves, check_keys, parse_toml, read_values, require
from nki.target.model import Target
from nki.topology.records import Instance

_FOLDER = Path(__file__).resolve().parent / "instances"
_WIRINGS = ("torus", "switch")


def load_instance(name: str) -> Instance:
    """The instance of that name or alias; case does not matter. The same object every time.

    Raises:
        TargetError: ``topology.unknown``.
    """
    known = _instances()
    found = known.get(name.strip().lower())
    if found is None:
        close = get_close_matches(name.strip().lower(), known, n=1)
        names = ", ".join(instance_names())
        raise TargetError(
            "topology.unknown",
            f"unknown instance {name!r}",
            fix=f"write {close[0]}; the instances are {names}" if close else f"use one of: {names}",
            facts={"known": instance_names()},
        )
    return found


def instance_names() -> tuple[str, ...]:
    """Names of the instances, without what exists for tests."""
    return tuple(sorted({each.name for each in _instances().values() if each.target != "unit"}))


def instance_of(target: Target) -> Instance:
    """The instance that is meant where only the target is named: that which has the target's name as an alias."""
    if target.toy:
        return load_instance("unit")
    return next(
        each for key, each in _instances().items() if key == each.target and each.generation == target.generation
    )


@lru_cache(maxsize=64)  # one for each instance and target that somebody asks about
def with_coefficients(instance: Instance, target: Target) -> Instance:
    """The instance with the coefficients of collectives that a target of somebody's own states."""
    if not target.collectives:
        return instance
    return replace(instance, collective=replace(instance.collective, **target.collectives))


def read_instance(text: str, origin: str) -> Instance:
    """An instance from TOML text; `origin` names the file in errors.

    Raises:
        TargetError: as `nki.target.load.read_target`.
    """
    leaves: Leaves = {}
    table = parse_toml(text, origin)
    check_keys(table, [item.name for item in fields(Instance) if item.name != "provenances"], "", origin)
    instance = Instance(**read_values(Instance, table, "", leaves, origin), provenances=MappingProxyType(leaves))
    domain = instance.domain
    require(domain.wiring in _WIRINGS, origin, "domain.wiring", f"is {domain.wiring!r}, not one of {_WIRINGS}")
    require(domain.chips % domain.servers == 0, origin, "domain.servers", f"is {domain.servers}, and must divide chips")
    return instance


@cache  # files of the package, which do not change
def _instances() -> Mapping[str, Instance]:
    found: dict[str, Instance] = {}
    for path in sorted(_FOLDER.glob("*.toml")):
        instance = read_instance(path.read_text(encoding="utf-8"), path.name)
        for name in (instance.name, *instance.aliases):
            require(name not in found, path.name, "aliases", f"has {name!r}, which another instance has")
            found[name] = instance
    return MappingProxyType(found)

"""Targets of a user's own: a file with other coefficients for one of the generations, as a calibration writes it.

Such a target is called by its generation, the file and a digest of what is in it, so that another process finds the
same target by the name, and nothing that was compiled for other coefficients is taken for it.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nki.core.errors import TargetError

SUFFIX = ".toml"
_NAME = re.compile(r"(?P<base>[a-z0-9_]+)@(?P<path>.+\.toml)#(?P<digest>[0-9a-f]{8})")
_MOST = 1 << 20
"""Bytes of a file."""


class Own(NamedTuple):
    """A file of a user.

    Attributes:
        name: of the target.
        base: name of the generation.
        coefficients: leaves of the table ``timing`` that it states anew.
        collective: leaves of the table ``collective``.
        origin: the file, for errors.
    """

    name: str
    base: str
    coefficients: Mapping[str, Any]
    collective: Mapping[str, Any]
    origin: str


def is_own(name: str) -> bool:
    """Whether a target's name is that of a file."""
    return name.endswith(SUFFIX) or _NAME.fullmatch(name) is not None


def own_file(name: str) -> str:
    """The file in the name of a target of somebody's own; "" for a generation."""
    found = _NAME.fullmatch(name)
    return found["path"] if found else ""


def base_of(name: str) -> str:
    """The generation of a target, which may be somebody's own."""
    found = _NAME.fullmatch(name)
    return found["base"] if found else name


def read_own(name: str) -> Own:
    """The file that a name speaks of: a path, or the name of a target that was read before.

    Raises:
        TargetError: it cannot be read (``target.file``), is not TOML (``target.toml``), does not name the generation
            that it is for (``target.data``), or has changed since it was named (``target.changed``).
    """
    known = _NAME.fullmatch(name)
    path = Path(known["path"] if known else name).expanduser().resolve()
    try:
        if path.stat().st_size > _MOST:
            raise OSError(0, f"it has more than {_MOST} bytes")
        data = path.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        fix = "name a file that a calibration wrote, or a generation: nki targets lists them"
        raise TargetError("target.file", f"{path} cannot be read: {why}", fix=fix) from problem
    digest = hashlib.sha256(data).hexdigest()[:8]
    if known and known["digest"] != digest:
        message = f"{path} is not what it was: the target was made of contents {known['digest']}, now it is {digest}"
        raise TargetError("target.changed", message, fix="compile again for the file as it is now")
    try:
        leaves = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError("target.toml", f"{path.name} is not TOML: {error}", fix="correct the file") from error
    base = leaves.pop("base", None)
    if not isinstance(base, str):
        message = f"{path.name} does not say which generation it is for"
        raise TargetError("target.data", message, fix='write a line such as: base = "trn2"')
    collective = leaves.pop("collective", {})
    if not isinstance(collective, dict):
        raise TargetError("target.data", f"collective in {path.name} is no table", fix="write [collective] above it")
    return Own(f"{base}@{path}#{digest}", base, leaves, collective, path.name)


def leaf_text(name: str, leaf: Mapping[str, Any]) -> str:
    """A leaf as a line of such a file; what JSON escapes, TOML reads."""
    return f"{name} = {{ {', '.join(f'{key} = {json.dumps(value)}' for key, value in leaf.items())} }}"

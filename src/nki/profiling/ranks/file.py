"""The profile of a step as ``step.json``: written at once, read with distrust."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from nki.profiling.errors import CONTROL, refused, unwritable
from nki.profiling.formats.regular_files import open_regular
from nki.profiling.optional_formats import STEP
from nki.profiling.ranks.ranges import ranges
from nki.profiling.ranks.record import StepProfile
from nki.profiling.ranks.rows import Collective, Communicated, Interval, PathPiece, RankClass

FORMAT, VERSION = "nki-step", 1
MOST_BYTES = 256 << 20
MOST_RANKS = 1 << 20
_MOST_TEXT = 100_000
_MOST_NS = 1e15


def save(profile: StepProfile, folder: Path) -> None:
    """See `StepProfile.save`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(_json(profile), allow_nan=False)
        (folder / STEP).unlink(missing_ok=True)
        (folder / STEP).write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise unwritable(folder, problem) from problem


def _json(profile: StepProfile) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "is_simulation": True,
        **{name: getattr(profile, name) for name in _HEAD},
        "notes": list(profile.notes),
        "classes": [{**asdict(each), "ranks": ranges(each.ranks)} for each in profile.classes],
        "collectives": [asdict(each) for each in profile.collectives],
        "path": [list(piece) for piece in profile.path],
        "groups": profile.groups,
    }


_HEAD = ("name", "ranks", "instance", "target", "makespan_ns")


def load(folder: Path) -> StepProfile:
    """See `StepProfile.load`."""
    try:
        with open_regular(folder / STEP, MOST_BYTES) as file:
            found = json.loads(file.read(MOST_BYTES + 1).decode(), parse_constant=_no_constant)
    except OSError as problem:
        code = "profile.size" if problem.errno == errno.EFBIG else "profile.folder"
        raise refused(code, f"{folder / STEP}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise refused("profile.folder", f"{STEP} is no JSON: {type(problem).__name__}") from problem
    if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
        raise refused("profile.version", f"{STEP} is no {FORMAT} of version {VERSION}")
    try:
        return _profile(found)
    except (TypeError, ValueError, KeyError, IndexError) as problem:
        raise refused("profile.values", f"{STEP}: {problem!r}"[:200]) from problem


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _profile(found: Mapping[str, Any]) -> StepProfile:
    ranks = _count(found["ranks"], MOST_RANKS)
    classes = [_class(each, ranks, len(found["classes"]), len(found["collectives"])) for each in found["classes"]]
    if len(found["groups"]) != len(found["collectives"]):
        raise ValueError("each collective has its groups")
    named = sorted(rank for each in classes for rank in each.ranks)
    if named != list(range(ranks)):
        raise ValueError("each rank is in one class")
    collectives = [Collective(**_row(each, Collective)) for each in found["collectives"]]
    path = [
        PathPiece(_ns(start), _ns(end), _count(rank, ranks - 1), _number(collective, -1, len(collectives) - 1))
        for start, end, rank, collective in found["path"]
    ]
    return StepProfile(
        name=_text(found["name"]),
        ranks=ranks,
        instance=_text(found["instance"]),
        target=_text(found["target"]),
        makespan_ns=_ns(found["makespan_ns"]),
        classes=classes,
        collectives=collectives,
        path=path,
        groups=[[tuple(_count(rank, ranks - 1) for rank in group) for group in each] for each in found["groups"]],
        notes=[_text(note) for note in found["notes"]],
    )


def _class(found: Mapping[str, Any], ranks: int, classes: int, collectives: int) -> RankClass:
    spans = [(_count(first, ranks - 1), _count(last, ranks - 1)) for first, last in found["ranks"]]
    made: dict[str, Any] = {
        "ranks": tuple(rank for first, last in spans for rank in range(first, last + 1)),
        "program": _count(found["program"], ranks - 1),
        "work": [(_ns(start), _ns(end)) for start, end in found["work"]],
        "runs": [Interval(_text(name), _ns(start), _ns(end)) for name, start, end in found["runs"]],
        "communications": [_communicated(each, classes, collectives) for each in found["communications"]],
    }
    times: dict[str, Any] = {
        field.name: _ns(found[field.name]) for field in fields(RankClass) if field.name not in made
    }
    if not made["ranks"]:
        raise ValueError("a class has ranks")
    return RankClass(**made, **times)


def _communicated(found: Any, classes: int, collectives: int) -> Communicated:
    number, ready, start, end, exposed, last, partners = found
    return Communicated(
        _count(number, collectives - 1),
        _ns(ready),
        _ns(start),
        _ns(end),
        _ns(exposed),
        _count(last, classes - 1),
        tuple(_count(each, classes - 1) for each in partners),
    )


def _row(found: Mapping[str, Any], kind: type) -> dict[str, Any]:
    read: Mapping[str, Callable[[Any], Any]] = {"str": _text, "int": _count, "float": _ns}
    return {field.name: read[str(field.type)](found[field.name]) for field in fields(kind)}


def _ns(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1.0 <= value <= _MOST_NS:
        raise ValueError(f"{value!r} is no time")
    return float(value)


def _count(value: Any, most: int = 2**53) -> int:
    return _number(value, 0, most)


def _number(value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{value!r} is no number from {least} to {most}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MOST_TEXT or CONTROL.search(value):
        raise ValueError(f"{str(value)[:40]!r} is no text")
    return value

"""The record: a file with a line for each case, and what differs from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from scripts.replaying.case import ASPECTS, Found
from scripts.replaying.places import ROOT

FILE = ROOT / "scripts" / "replay.json"

Record = Mapping[str, Found]


class Difference(NamedTuple):
    """One aspect of one case; "" for one that is not there."""

    case: str
    aspect: str
    recorded: str
    found: str


def text_of(record: Record) -> str:
    """JSON, sorted, with a line for each case."""
    lines = (f"{json.dumps(case)}: {json.dumps(_sorted(found))}" for case, found in sorted(record.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _sorted(found: Found) -> Found:
    return {aspect: found[aspect] for aspect in ASPECTS if aspect in found}


def load() -> Record:
    """What was recorded."""
    record: Record = json.loads(FILE.read_text(encoding="utf-8"))
    return record


def differences(recorded: Record, found: Record) -> list[Difference]:
    """In the order of the cases."""
    return [
        Difference(case, aspect, *values)
        for case in sorted({*recorded, *found})
        for aspect in ASPECTS
        if len(set(values := tuple(each.get(case, {}).get(aspect, "") for each in (recorded, found)))) > 1
    ]

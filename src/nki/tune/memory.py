"""What was found before: entries on disk under keys that cover everything that they depend on, and pinned files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nki.core.errors import LaunchError
from nki.core.regular import read_regular
from nki.core.shown import shown
from nki.driver.launch import Launch
from nki.frontend.dependencies.arguments import Described
from nki.frontend.dependencies.manifest import Manifest
from nki.options import Options
from nki.store.files import write_whole
from nki.store.keys import key_of
from nki.store.settings import settings
from nki.tune.config import Config
from nki.tune.job import is_unanswered
from nki.tune.tuned import Candidate, Tuned, tuned_from

FORMAT, VERSION = "nki-tuned", 1
_LIMIT_BYTES = 1 << 24


def disk_key(
    manifest: Manifest,
    launch: Launch,
    configs: Sequence[Config],
    described: Described,
    shapes: Sequence[tuple[tuple[int, ...], str]],
    settings_of_search: tuple[Any, ...],
    target: str,
    options: Options,
) -> str:
    """The key of an entry on disk; empty if something has no value to compare.

    It covers the kernel and all that it reads by value, the candidates, the call, and this installation with its
    timing model.
    """
    if not manifest.digest or described.references:
        return ""
    try:
        return key_of(
            "tune",
            kernel=manifest.digest,
            name=launch.name,
            lnc=launch.lnc,
            schedule=launch.schedule,
            config=launch.config,
            specialization=launch.specialization_config,
            configs=[(dict(each.arguments), each.lnc, each.compile_config) for each in configs],
            arguments=described.outline,
            arrays=list(shapes),
            search=settings_of_search,
            target=target,
            options=options,
        )
    except TypeError:
        return ""


def from_disk(key: str, configs: Sequence[Config]) -> Tuned | None:
    """An entry; None if there is none, or if it is not about these candidates."""
    store = settings().cache()
    data = store.get(key) if store is not None and key else None
    if data is None:
        return None
    try:
        found = tuned_from(json.loads(data), "disk")
    except ValueError:
        return None
    if found is None or [each.label for each in found.candidates] != [each.label for each in configs]:
        return None
    return found


def to_disk(key: str, tuned: Tuned) -> None:
    """Keep an entry, if there is a cache; not one that lacks answers, which other workers may give."""
    store = settings().cache()
    lacks = any(is_unanswered(each.reason) for each in tuned.candidates)
    if store is not None and key and not lacks:
        store.put(key, json.dumps(tuned.to_json()).encode())


def read_pinned(path: Path, kernel: str, configs: Sequence[Config]) -> dict[tuple[str, str], Tuned]:
    """Entries of a file by target and key.

    Raises:
        LaunchError: the file cannot be read, is something else, or names a configuration that is not there
            (``tune.pinned``).
    """
    try:
        data = read_regular(path, _LIMIT_BYTES + 1)
        if len(data) > _LIMIT_BYTES:
            raise _pinned(f"{path} has more than {_LIMIT_BYTES} bytes")
        document = json.loads(data)
    except (OSError, ValueError, RecursionError) as problem:
        raise _pinned(f"{path} cannot be read: {problem}") from None
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (FORMAT, VERSION):
        raise _pinned(f"{path} is no file of tuned kernels of version {VERSION}")
    labels = {each.label for each in configs}
    found: dict[tuple[str, str], Tuned] = {}
    for entry in _entries(document, path):
        if entry["kernel"] != kernel:
            continue
        if entry["config"] not in labels:
            raise _pinned(f"{path} has {entry['config']!r} for {kernel}, which is none of its configurations")
        candidate = Candidate(entry["config"], "chosen")
        found[entry["target"], entry["key"]] = Tuned(kernel, entry["target"], entry["key"], (candidate,), "pinned")
    return found


def write_pinned(path: Path, tuned: Sequence[Tuned]) -> None:
    """Put entries into a file; those of other kernels, targets and keys that it has stay.

    Raises:
        LaunchError: there is something else in the file, or it cannot be written (``tune.pinned``).
    """
    entries: dict[tuple[str, ...], dict[str, str]] = {}
    if path.exists():
        read_pinned(path, "", ())
        for entry in _entries(json.loads(path.read_bytes()), path):
            entries[_identity(entry)] = entry
    for each in tuned:
        new = {"kernel": each.kernel, "target": each.target, "key": each.key, "config": each.chosen.label}
        entries[_identity(new)] = new
    document = {"format": FORMAT, "version": VERSION, "entries": [entries[name] for name in sorted(entries)]}
    try:
        write_whole(path, (json.dumps(document, indent=2) + "\n").encode())
    except OSError as problem:
        raise _pinned(f"{path} cannot be written: {problem}") from None


def with_origin(tuned: Tuned, origin: str) -> Tuned:
    """A result with another `origin`: how it was found."""
    return replace(tuned, origin=origin)


def _identity(entry: dict[str, str]) -> tuple[str, ...]:
    return entry["kernel"], entry["target"], entry["key"]


def _entries(document: Any, path: Path) -> list[dict[str, str]]:
    entries = document.get("entries")
    names = ("kernel", "target", "key", "config")
    if not isinstance(entries, list):
        raise _pinned(f"{path} has no list of entries")
    for entry in entries:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(name), str) for name in names):
            raise _pinned(f"{path} has the entry {shown(entry)}")
    return [{name: entry[name] for name in names} for entry in entries]


def _pinned(message: str) -> LaunchError:
    return LaunchError(
        "tune.pinned",
        message,
        rule="a pinned file is what nki tune --pin or kernel.pin wrote, for the configurations that the kernel has",
        fix="tune the kernel again with --pin",
    )

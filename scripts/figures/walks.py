"""Which way a call takes: files of the package that it enters, how often it changes between them, and where it goes up.

A call is watched by the interpreter's profile hook, in the caller's thread. A file is entered when a function or the
body of a class in it begins; that a module is executed when it is imported does not count. There is a change where a
function begins or ends and the one that began or ended before it lies in another file. A call goes up if the module
of the called function lies on a higher line of a contract of layers in pyproject.toml than that of the caller; the
contract of the innermost package that holds both is asked. Imports go down, so what goes up is a function or an
object that was handed in.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

Contracts = Mapping[str, Sequence[Sequence[str]]]
"""Lines of names, the highest first, by the package that they are in."""
SCRIPTS = Path(__file__).resolve().parents[2]


def walks(root: Path) -> dict[str, Any]:
    """By the name of the walk: files, changes, the order in which files are first entered, and the calls that go up.

    Each subject runs in a process of its own, with the package of that checkout, an empty cache and no settings.
    """
    return {name: walk for subject in ("kernel", "model") for name, walk in walked(root, subject).items()}


def walked(root: Path, subject: str) -> dict[str, Any]:
    """The walks of one subject, see `walks`."""
    layers = contracts(root)
    return {name: _walk(events, layers) for name, events in _watched(root, subject).items()}


def _watched(root: Path, subject: str) -> dict[str, list[list[str]]]:
    """Events of the calls of a subject, as `Watch` has them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NKI_", "NEURON_"))}
    with tempfile.TemporaryDirectory() as cache:
        path = os.pathsep.join(map(str, (root / "src", SCRIPTS)))
        environment = {**kept, "NKI_CACHE_DIR": cache, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "scripts.figures.watched", subject, str(root / "src" / "nki")]
        done = subprocess.run(command, env=environment, cwd=cache, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the {subject} does not run:\n{done.stderr}")
    events: dict[str, list[list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return events


def _walk(events: Sequence[Sequence[str]], layers: Contracts) -> dict[str, Any]:
    begun = [event[1:] for event in events if event[0] == "call"]
    first: dict[str, str] = {}
    for _, _, file, function in begun:
        first.setdefault(file, function)
    files = [event[3] for event in events]
    ups = [event for event in begun if goes_up(_module(event[0]), _module(event[2]), layers)]
    return {
        "files": len(first),
        "changes": sum(one != two for one, two in pairwise(files)),
        "up": list(dict.fromkeys(f"{a} {f} -> {b} {g}" for a, f, b, g in ups)),
        "order": [f"{file} {function}" for file, function in first.items()],
    }


def _module(file: str) -> str:
    return f"nki.{file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}" if file else ""


def contracts(root: Path) -> Contracts:
    """The contracts of layers of a checkout."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return {
        container: [re.findall(r"[\w.]+", line) for line in contract["layers"]]
        for contract in settings["tool"]["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for container in contract["containers"]
    }


def goes_up(caller: str, called: str, layers: Contracts) -> bool:
    """Whether a call goes to a higher layer of the innermost package that both modules are in."""
    shared = [name for name in layers if all(each.startswith(f"{name}.") for each in (caller, called))]
    if not shared:
        return False
    package = max(shared, key=len)
    places = [_place(module.removeprefix(f"{package}."), layers[package]) for module in (caller, called)]
    return None not in places and places[1] < places[0]  # type: ignore[operator]


def _place(module: str, lines: Sequence[Sequence[str]]) -> int | None:
    names = (module, module.partition(".")[0])
    return next((number for number, line in enumerate(lines) if any(name in line for name in names)), None)


def tables(found: Mapping[str, Any]) -> Iterator[str]:
    """Lines for people; of calls that go up each pair of functions once."""
    yield f"{'walk':44}{'files':>7}{'changes':>9}{'up':>5}"
    for name, walk in found.items():
        yield f"{name:44}{walk['files']:>7}{walk['changes']:>9}{len(walk['up']):>5}"
    for name, walk in found.items():
        if walk["up"]:
            yield f"\n{name}: calls that go up"
            yield from (f"  {each}" for each in walk["up"])
    for name, walk in found.items():
        if "later" in name:
            yield f"\n{name}: files in the order in which they are entered"
            yield from (f"  {each}" for each in walk["order"])

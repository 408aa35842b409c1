"""All figures of a checkout, as one record for JSON and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.figures import choices, names, records, sizes, state, words
from scripts.figures.tree import sources


def figures(root: Path) -> dict[str, Any]:
    """What is counted, by its heading; lists have the places."""
    found = sources(root)
    rows = sizes.folders(found)
    kept, begun = state.state(found), words.fragments(found)
    return {
        "folders": rows,
        "total": {column: sum(row[column] for row in rows.values()) for column in next(iter(rows.values()))},
        "folders with too many files": sizes.crowded(rows),
        "class names that three or more share": names.shared_classes(found, 3),
        "class names that two share": {n: p for n, p in names.shared_classes(found, 2).items() if len(p) == 2},
        "names that are a module and something else": names.collisions(found),
        "docstrings that begin with a fragment": begun["docstrings"],
        "texts below values that begin with a fragment": begun["values"],
        "records of over 8 fields made by position": records.positional(found),
        "uses of from_environment": choices.environment(found),
        "calls of load_target with a default": choices.default_targets(found),
        "state at the top of modules": [f"{each.place} {each.name} ({each.kind})" for each in kept],
        "state that nobody justifies": [f"{each.place} {each.name} ({each.kind})" for each in kept if not each.why],
        "functions": sizes.functions(found),
    }


def tables(found: Mapping[str, Any], pairs: bool) -> Iterator[str]:
    """Lines for people; `pairs`: with the names that two classes share."""
    yield f"{'folder':32}{'files':>7}{'lines':>9}{'code':>9}{'comments':>10}"
    for name, row in (*found["folders"].items(), ("all", found["total"])):
        yield f"{name:32}{row['files']:>7}{row['lines']:>9}{row['code']:>9}{row['comments']:>10}"
    functions = found["functions"]
    yield f"\nfunctions: {functions['all']}, of at most 6 lines {functions['at most 6 lines']}"
    details = {key: value for key, value in found.items() if key not in ("folders", "total", "functions")}
    details |= {f"functions {key}": functions[key] for key in ("over 30 lines", "with local imports")}
    for heading, value in details.items():
        counted = sum(value.values()) if value and isinstance(next(iter(_values(value))), int) else len(value)
        yield f"\n{heading}: {counted}"
        if heading != "class names that two share" or pairs:
            yield from _lines(value)


def _values(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value


def _lines(value: Any) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield from (f"  {each}" for each in value)
        return
    for name, each in value.items():
        yield f"  {each:5} {name}" if isinstance(each, int) else f"  {len(each):5} {name}: {', '.join(each)}"

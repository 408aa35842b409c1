"""What a recorded comparison belongs to: numbers of the targets, published points, and the code that makes times."""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ROOT / "src" / "nki"
TABLES = ("target/trn*.toml", "target/calibration/trn*.toml", "target/calibration/points.toml")
CODE = ("timing/*.py", "spec/cost*.py", "spec/step.py")
WORDS = frozenset({"estimate", "source", "note", "meaning", "fitted", "unit", "reason", "provenance"})
"""Keys of tables that say where a number comes from; they change no time."""


def digest() -> str:
    """A hash of all that predicted and measured times of the points follow from, but for the compiler's order.

    Words do not count: neither comments and docstrings of code, nor sources and notes of numbers.
    """
    found = hashlib.sha256()
    for pattern in TABLES:
        for path in sorted(PRODUCT.glob(pattern)):
            table = _numbers(tomllib.loads(path.read_text(encoding="utf-8")))
            found.update(json.dumps([path.name, table], sort_keys=True).encode())
    for path in _sources():
        found.update(f"{path.name} {code_of(path)}".encode())
    return found.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    for pattern in CODE:
        yield from sorted(PRODUCT.glob(pattern))
    yield from sorted(path for path in Path(__file__).parent.glob("*.py") if path.name in _CASES)


_CASES = frozenset(
    f"{name}.py"
    for name in (
        "catalogue",
        "instructions",
        "mamba",
        "products",
        "public_products",
        "public_shapes",
        "public_streams",
        "runs",
        "shapes",
        "transfers",
    )
)


def _numbers(table: Any) -> Any:
    if isinstance(table, dict):
        return {key: _numbers(value) for key, value in table.items() if key not in WORDS}
    return [_numbers(item) for item in table] if isinstance(table, list) else table


def code_of(path: Path) -> str:
    """The code of a file without comments and docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # of a lambda it is an expression
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

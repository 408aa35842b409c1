"""Reports files and functions that are longer than the house likes; it never fails, it makes growth visible.

usage: python scripts/size_report.py DIRECTORY...
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 30


@dataclass(frozen=True, slots=True)
class Long:
    """Something too long: how many lines it has, of how many it should have, and where."""

    lines: int
    limit: int
    place: str


def long_parts(path: Path) -> Iterator[Long]:
    """The file itself if it is too long, and each of its too long functions."""
    text = path.read_text(encoding="utf-8")
    file_lines = text.count("\n")
    if file_lines > MAX_FILE_LINES:
        yield Long(file_lines, MAX_FILE_LINES, str(path))
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = code_lines(node)
            if lines > MAX_FUNCTION_LINES:
                yield Long(lines, MAX_FUNCTION_LINES, f"{path}:{node.lineno} {node.name}")


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function from ``def`` to its end, its docstring not counted: documentation is not length."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is None or len(function.body) == 1:
        return total
    return total - ((first.end_lineno or first.lineno) - first.lineno + 1)


def main(directories: list[str]) -> None:
    """Print the table, longest first."""
    files = sorted(path for directory in directories for path in Path(directory).rglob("*.py"))
    found = sorted((part for path in files for part in long_parts(path)), key=lambda part: -part.lines)
    total = sum(path.read_text(encoding="utf-8").count("\n") for path in files)
    print(f"sizes: {len(files)} files, {total} lines; {len(found)} longer than wanted")
    for part in found:
        print(f"  {part.lines:5} lines (want {part.limit:3})  {part.place}")


if __name__ == "__main__":
    main(sys.argv[1:])

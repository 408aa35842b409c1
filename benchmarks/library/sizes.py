"""Lines of each kernel and its longest function, beside the published kernel's.

usage: python -m benchmarks.library.sizes --official CHECKOUT [--json FILE]

Counted are lines with code: no blank ones, comments or docstrings. A kernel's lines are those of its module and of all
modules of its library that it imports, but for what the libraries have for everybody: `nkilib/*.py` here, and
``core/utils`` in both. References, tests and modules of a package that only export names do not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import tokenize
from dataclasses import asdict, dataclass
from pathlib import Path

from nkilib.catalogue import CATALOGUE

_SOURCE = Path(__file__).resolve().parents[2] / "src"


@dataclass(frozen=True)
class Size:
    """Of one kernel.

    Attributes:
        files: that are counted.
        lines: with code.
        longest: lines with code of the longest function.
        functions: how many there are.
    """

    files: int
    lines: int
    longest: int
    functions: int


def code_lines(path: Path) -> set[int]:
    """Numbers of the lines of a file that have code."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    with tokenize.open(path) as text:
        tokens = [token for token in tokenize.generate_tokens(text.readline) if token.type not in skipped]
    lines = {number for token in tokens for number in range(token.start[0], token.end[0] + 1)}
    return lines - _docstrings(path)


def _docstrings(path: Path) -> set[int]:
    """Lines of expressions that are nothing but a string."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def imported(path: Path, root: Path, package: str) -> set[Path]:
    """Files of a library that a module imports."""
    module = path.relative_to(root).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = list(module[: len(module) - node.level]) if node.level else []
            name = [*base, *(node.module or "").split(".")] if node.module else base
            names = [name, *([*name, alias.name] for alias in node.names)]
            found |= {file for each in names if each[:1] == [package] for file in _file(root, each)}
    return found


def _file(root: Path, name: list[str]) -> list[Path]:
    place = root.joinpath(*name)
    return [each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file()][:1]


def files_of(start: Path, root: Path, package: str) -> set[Path]:
    """The module and what it imports of its library, as far as it counts."""
    found, left = set(), [start]
    while left:
        path = left.pop()
        if path not in found and _counts(path, root, package):
            found.add(path)
            left += imported(path, root, package)
    return {path for path in found if path.name != "__init__.py"}


def _counts(path: Path, root: Path, package: str) -> bool:
    parts = path.relative_to(root).parts
    for_everybody = "utils" in parts[:-1] or len(parts) == len(package.split(".")) + 1
    return not for_everybody and not path.stem.endswith(("_reference", "_torch", "torch_ref"))


def size(start: Path, root: Path, package: str) -> Size:
    """Of the kernel in a module."""
    files = files_of(start, root, package)
    lines = {path: code_lines(path) for path in files}
    functions = [
        len(lines[path] & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    return Size(len(files), sum(map(len, lines.values())), max(functions, default=0), len(functions))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--official", required=True, help="a checkout of the published library")
    parser.add_argument("--json", default="", help="a file that the figures go to")
    args = parser.parse_args()
    published = Path(args.official, "src", "nkilib_src")
    rows = {}
    heads = f"{'files':>5} {'lines':>6} {'longest':>8}"
    print(f"{'kernel':34} {heads}   {'official: ':>9}{heads}")
    for name, entry in sorted(CATALOGUE.items()):
        ours = size(_SOURCE / Path(*entry.module.split(".")).with_suffix(".py"), _SOURCE, "nkilib")
        place = published / Path(*entry.module.split(".")).with_suffix(".py")
        theirs = size(place, published, "nkilib") if place.is_file() else None
        rows[name] = {"ours": asdict(ours), "official": None if theirs is None else asdict(theirs)}
        beside = "" if theirs is None else f"{theirs.files:15} {theirs.lines:6} {theirs.longest:8}"
        print(f"{name:34} {ours.files:5} {ours.lines:6} {ours.longest:8}   {beside}")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

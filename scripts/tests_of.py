"""Prints the tests of source files, found by names and imports; nothing is listed by hand but what neither gives.

A file's own tests are the first of these that there are:

1. `test_NAME.py` and `test_NAME_*.py` that import the file in whatever way, in the folder of tests that mirrors the
   file's folder, or in one above it; for a module of the package itself, in any folder;
2. tests in those folders that import the file, themselves or by a helper module of the tests;
3. the same of the nearest files of its folder that import it: what only neighbours use is tested by their tests;
4. any other tests that import it;
5. those of 1 and 2 of the nearest files of other folders that import it;
6. all tests of the nearest of those folders.

A file `text/NAME.txt` in those folders, of cases that are text, is among them; where 1 and 2 find nothing, it is alone.

``--all`` adds the others of 1, 2 and 4, and those that such a file stands for. Without a file, those that differ from
the last commit count.
Usage: ``python scripts/tests_of.py [--all] [FILE ...]``; `make test-of FILE=...` runs what is printed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("nki", "nkilib", "torch_neuronx")

EXCEPTIONS: Mapping[str, str] = {
    "src/nki/__main__.py": "tests/tools/test_command.py",
}
"""Source file -> its test, where it is neither named like one nor imported."""

TEXT = "text"
"""The folder of files with cases for the source file of their name; see tests/text_cases.py."""

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#]*)|import[ \t]+([^\n#]+))", re.M)
_LITERAL = re.compile(r"""(?:["']|\bfrom |\bimport )(nki(?:\.\w+)+)\b""")
"""A module that is loaded by its name when it is needed, or by the code of another process."""


class Tree:
    """The modules of a checkout and what they import; nothing is executed."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.modules: dict[str, Path] = {}
        for top, folders in (("src", SOURCES), ("", ("tests",))):
            for folder in folders:
                for path in sorted((root / top / folder).rglob("*.py")):
                    parts = path.relative_to(root / top).with_suffix("").parts
                    self.modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.tests = [path for path in self.modules.values() if is_test(path)]
        self._folder: dict[Path, list[Path]] = {}
        for test in self.tests:
            self._folder.setdefault(test.parent, []).append(test)
        self._reached: dict[str, set[str]] = {}
        self._found: dict[Path, list[Path]] = {}
        self._names = {path: name for name, path in self.modules.items()}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """Which modules each module imports, wherever in its file."""
        return {name: set(self._imported(path.read_text(encoding="utf-8"))) for name, path in self.modules.items()}

    @cached_property
    def importers(self) -> dict[Path, list[Path]]:
        """The files that import a file."""
        found: dict[Path, list[Path]] = {path: [] for path in self.modules.values()}
        for name, imported in self.imports.items():
            for other in imported:
                found[self.modules[other]].append(self.modules[name])
        return found

    def own(self, file: Path) -> list[Path]:
        """The tests to run after an edit of a file; [] if it has none."""
        if is_test(file) or is_text(file):
            return [file]
        if listed := EXCEPTIONS.get(file.relative_to(self.root).as_posix()):
            return [self.root / listed]
        if file.suffix != ".py":
            return self._beside(file)
        texts = self._texts(file)
        if texts and not self._near(file):
            return texts
        return [*self._others(file), *texts]

    def _others(self, file: Path) -> list[Path]:
        """Those that are Python."""
        steps = (self._near, partial(self._of_users, beside=True), self._importing, self._of_users, self._beside)
        return next((found for step in steps if (found := step(file))), [])

    def all(self, file: Path) -> list[Path]:
        """Its own tests, and all others that have its name or import it."""
        others = self._others(file) if self._texts(file) else []
        return sorted({*self.own(file), *others, *self._named(file), *self._importing(file)})

    def reaches(self, test: Path, file: Path) -> bool:
        """Whether a test imports a file, by whatever way."""
        name = self._names[test]
        if name not in self._reached:
            seen, waiting = {name}, [name]
            while waiting:
                new = self.imports[waiting.pop()] - seen
                seen |= new
                waiting += new
            self._reached[name] = seen
        return self._names[file] in self._reached[name]

    def _near(self, file: Path) -> list[Path]:
        if file not in self._found:
            folders = self._folders(file)
            near = [test for test in self._importing(file) if test.parent in folders]
            self._found[file] = self._named(file) or near
        return self._found[file]

    def _named(self, file: Path) -> list[Path]:
        parts = file.relative_to(self.root).with_suffix("").parts
        stem = parts[-2] if parts[-1] == "__init__" else parts[-1]
        names = {stem, f"{parts[-2]}_{stem}"}
        folders = self._folders(file) or list(self._folder)
        found = [test for folder in folders for test in self._folder.get(folder, ())]
        found = [test for test in found if any(f"{test.stem}_".startswith(f"test_{name}_") for name in names)]
        return [test for test in found if self.reaches(test, file)]

    def _importing(self, file: Path) -> list[Path]:
        found, waiting = {file}, [file]
        while waiting:
            new = {path for path in self.importers.get(waiting.pop(), ()) if self._is_of_tests(path)} - found
            found |= new
            waiting += [path for path in new if not is_test(path)]
        return sorted(path for path in found if is_test(path))

    def _of_users(self, file: Path, beside: bool = False) -> list[Path]:
        """The tests of the nearest files that import it; of those in its folder, if it says so."""
        seen, level = {file}, [file]
        while level:
            users = {user for path in level for user in self.importers.get(path, ())} - seen
            level = [user for user in users if not self._is_of_tests(user)]
            level = [user for user in level if not beside or user.parent == file.parent]
            seen.update(level)
            if found := {test for path in level for test in self._near(path)}:
                return sorted(found)
        return []

    def _texts(self, file: Path) -> list[Path]:
        """The cases that are text, in the first folder `text` of its folders of tests that has some of its name."""
        found = (folder / TEXT / f"{file.stem}.txt" for folder in self._folders(file))
        return [path for path in found if path.is_file()][:1]

    def _beside(self, file: Path) -> list[Path]:
        for folder in self._folders(file):
            if found := self._folder.get(folder):
                return found
        return []

    def _folders(self, file: Path) -> list[Path]:
        """The folders of tests for a file, nearest first; those of a file of the tests are its own."""
        parts = file.relative_to(self.root).parts[:-1]
        parts = parts[2:] if parts[:2] == ("src", "nki") else parts[1:]
        return [self.root.joinpath("tests", *parts[:count]) for count in range(len(parts), 0, -1)]

    def _is_of_tests(self, path: Path) -> bool:
        return self._names[path].startswith("tests.") and path.name != "conftest.py"

    def _imported(self, text: str) -> Iterator[str]:
        for source, names, plain in _IMPORT.findall(text):
            for word in re.findall(r"[\w.]+", re.sub(r"#.*|\bas\s+\w+", "", names or plain)):
                for name in (f"{source}.{word}", source) if source else (word,):
                    if name in self.modules:
                        yield name
                        break
        yield from (name for name in _LITERAL.findall(text) if name in self.modules)


def is_test(path: Path) -> bool:
    """Whether pytest collects it."""
    return path.name.startswith("test_") and path.suffix == ".py"


def is_text(path: Path) -> bool:
    """Whether it holds cases that are text, which pytest collects."""
    return path.suffix == ".txt" and path.parent.name == TEXT


def changed() -> Iterator[Path]:
    """The files that differ from the last commit and still exist."""
    command = ("git", "status", "--porcelain", "--no-renames", "--untracked-files=all")
    for line in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
        path = ROOT / line[3:].strip('"')
        if path.is_file() and path.relative_to(ROOT).parts[0] in ("src", "tests"):
            yield path


def tests_of(files: Iterable[Path], every: bool = False) -> list[Path]:
    """The tests of some files together.

    Raises:
        ValueError: a file is none of this repository, or has no test.
    """
    tree, found = Tree(), set()
    for file in files:
        if not file.is_file() or (not file.is_relative_to(ROOT / "src") and not file.is_relative_to(ROOT / "tests")):
            raise ValueError(f"{file} is no file below src or tests")
        tests = tree.all(file) if every else tree.own(file)
        if not tests:
            raise ValueError(f"{file.relative_to(ROOT)} has no test")
        found.update(tests)
    return sorted(found)


def main() -> None:
    """Print the tests, from the root of the repository."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--all", action="store_true", help="all tests that import the file")
    parser.add_argument("files", nargs="*", type=lambda word: Path(word).resolve(), help="default: what was changed")
    options = parser.parse_args()
    try:
        found = tests_of(options.files or changed(), options.all)
    except ValueError as error:
        sys.exit(str(error))
    if not found:
        sys.exit("nothing below src or tests was changed")
    print("\n".join(path.relative_to(ROOT).as_posix() for path in found))


if __name__ == "__main__":
    main()

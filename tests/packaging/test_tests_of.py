"""Every source file has tests that are found for it, and an edit of it runs them."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.packaging.building import REPOSITORY, run


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tests_of", REPOSITORY / "scripts" / "tests_of.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
TREE = SCRIPT.Tree(REPOSITORY)


def has_code(path: Path) -> bool:
    """Whether there is more than a docstring."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) for node in body)


SOURCES = [
    path
    for name, path in TREE.modules.items()
    if not name.startswith("tests") and (path.name != "__init__.py" or has_code(path))
]


def relative(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_every_source_file_has_tests() -> None:
    assert [relative(path) for path in SOURCES if not TREE.own(path)] == []


def test_what_is_no_python_has_tests() -> None:
    data = [path for path in (REPOSITORY / "src/nki").rglob("*") if path.suffix in {".toml", ".js", ".css", ".html"}]
    assert data and [relative(path) for path in data if not TREE.own(path)] == []


def test_exceptions_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = dict(SCRIPT.EXCEPTIONS)
    monkeypatch.setattr(SCRIPT, "EXCEPTIONS", {})
    for source, test in listed.items():
        assert (REPOSITORY / source).is_file() and (REPOSITORY / test).is_file()
        assert not TREE.own(REPOSITORY / source), f"{source} has tests without its exception"


def test_passes_have_few_tests_of_their_own() -> None:
    """So that an edit of one has a verdict at once."""
    passes = [
        path for path in (REPOSITORY / "src/nki/passes").glob("*.py") if re.search(r"^PASS = ", path.read_text(), re.M)
    ]
    assert passes and all(1 <= len(TREE.own(path)) <= 4 for path in passes)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A checkout in which each step of the search finds something."""
    files = {
        "src/nki/__init__.py": "",
        "src/nki/room/__init__.py": "",
        "src/nki/room/named.py": "",
        "src/nki/room/misnamed.py": "",
        "src/nki/room/imported.py": "",
        "src/nki/room/helped.py": "",
        "src/nki/room/hidden.py": "",
        "src/nki/room/user.py": "from nki.room.hidden import (\n    a,  # why\n    b as c,\n)",
        "src/nki/room/far.py": "",
        "src/nki/room/lazy.py": "",
        "src/nki/room/alone.py": "",
        "src/nki/other/uses.py": 'from nki.room import far\nLOADED = "nki.room.lazy"',
        "src/nki/room/data.toml": "",
        "tests/__init__.py": "",
        "tests/room/help.py": "import nki.room.helped",
        "tests/room/test_named.py": "from nki.room import named",
        "tests/room/text/named.txt": "",
        "tests/room/text/far.txt": "",
        "tests/room/test_named_again.py": "def test():\n    from nki.room import named",
        "tests/room/test_misnamed.py": "",
        "tests/room/test_a.py": "from nki.room.imported import x",
        "tests/room/test_b.py": "from tests.room.help import x",
        "tests/room/test_user.py": "import nki.room.user",
        "tests/other/test_uses.py": "import nki.other.uses\nfrom nki.room import named",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


ROOM = ["test_a", "test_b", "test_misnamed", "test_named", "test_named_again", "test_user"]


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("named", ["named", "test_named", "test_named_again"]),
        ("misnamed", ROOM),
        ("imported", ["test_a"]),
        ("helped", ["test_b"]),
        ("hidden", ["test_user"]),
        ("far", ["far"]),
        ("lazy", ["test_uses"]),
        ("alone", ROOM),
    ],
)
def test_where_tests_are_found(small: Path, file: str, tests: list[str]) -> None:
    found = SCRIPT.Tree(small).own(small / "src/nki/room" / f"{file}.py")
    assert sorted(path.stem for path in found) == tests


def test_all_tests_are_more(small: Path) -> None:
    found = SCRIPT.Tree(small).all(small / "src/nki/room/named.py")
    assert [path.stem for path in found] == ["test_uses", "test_named", "test_named_again", "named"]
    far = SCRIPT.Tree(small).all(small / "src/nki/room/far.py")
    assert [path.stem for path in far] == ["test_uses", "far"]


def test_data_has_the_tests_of_its_folder(small: Path) -> None:
    tree = SCRIPT.Tree(small)
    assert sorted(path.stem for path in tree.own(small / "src/nki/room/data.toml")) == ROOM
    assert tree.own(small / "tests/room/test_a.py") == [small / "tests/room/test_a.py"]


def test_the_command_prints_paths_and_refuses_what_is_no_source() -> None:
    printed = run(sys.executable, "scripts/tests_of.py", "src/nki/version.py", cwd=REPOSITORY).split()
    assert printed == ["tests/packaging/test_version.py"]
    with pytest.raises(AssertionError, match="is no file below src or tests"):
        run(sys.executable, "scripts/tests_of.py", "src/nki/gone.py", cwd=REPOSITORY)

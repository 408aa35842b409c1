"""Each figure on a few lines that have what it counts, and what it must not count."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from scripts import house
from scripts.figures import choices, names, records, sizes, state, words
from scripts.figures.tree import Source


def source(text: str, path: str = "nki/a.py") -> Source:
    return Source(path, dedent(text).lstrip("\n"))


def test_lines_of_code_are_those_with_code_on_them() -> None:
    text = source('''
        """Says
        what."""

        # why
        X = """
        kept"""
        """Of a value."""


        def f(a):
            """Does."""
            return (a,
                    1)  # both
        ''')
    assert sizes.lines_of_code(text) == 5
    assert sizes.folders([text]) == {"nki": {"files": 1, "lines": 13, "code": 5, "comments": 2}}


def test_comments_for_tools_are_none() -> None:
    text = source("a = 1  # noqa: E501\nb = 2  # type: ignore\nc = 3  # seconds\n")
    assert text.comments == {3: "# seconds"}


def test_folders_with_too_many_files_count_only_their_own() -> None:
    many = [source("", f"nki/{folder}/m{n}.py") for folder in ("tools", "isa", "tools/run") for n in range(20)]
    many += [source("", f"nki/{folder}/n{n}.py") for folder in ("tools", "isa") for n in range(11)]
    assert sizes.crowded(sizes.folders(many)) == {"nki/tools": 31}


def test_functions_that_are_long_or_import() -> None:
    lines = "\n".join(f"    b{n} = {n}" for n in range(30))
    text = source(
        f"def long(a):\n    '''Not counted.'''\n{lines}\n\ndef outer():\n    def inner():\n        import os\n"
    )
    found = sizes.functions([text])
    assert (found["all"], found["over 30 lines"]) == (3, ["nki/a.py:1 long 31"])
    assert found["with local imports"] == ["nki/a.py:35 inner"]


def test_shared_names_of_classes() -> None:
    parts = [source("class Plan:\n    class Box: ...\n", f"nki/{name}.py") for name in "abc"]
    assert names.shared_classes([*parts, source("class Box: ...")], 4) == {
        "Box": ["nki/a.py:2", "nki/b.py:2", "nki/c.py:2", "nki/a.py:1"]
    }
    assert list(names.shared_classes(parts, 3)) == ["Box", "Plan"]


def test_names_that_are_a_module_and_something_else() -> None:
    top = source(
        "from nki import isa as isa\nfrom nki.run import run, other\ndef deep(): ...\nwide = 1\n", "nki/__init__.py"
    )
    modules = [source("", f"nki/{name}.py") for name in ("isa", "run", "deep", "narrow")]
    assert [line.split()[0] for line in names.collisions([top, *modules])] == ["nki.deep", "nki.run"]


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("Of the operands.", True),
        ("The same in float64.", True),
        ("So many are kept.", True),
        ("Those of models.", True),
        ("Its name.", True),
        ("Itself, seen from a class.", True),
        ("Of-course", False),
        ("Offsets in bytes.", False),
        ("Sorted names.", False),
        ("What a kernel reads.", False),
        ("The sum of all.", False),
    ],
)
def test_docstrings_that_begin_with_a_fragment(text: str, begins: bool) -> None:
    for kind, code in (("docstrings", "def f():\n    '''{}'''\n"), ("values", "X = 1\n'''{}'''\n")):
        found = words.fragments([source(code.format(text))])
        assert [line.partition(" ")[2] for line in found[kind]] == [text] * begins
        assert sum(map(len, found.values())) == begins


RECORDS = """
    @dataclass
    class Base:
        a: int
        b: int
        c: int
        d: int
        e: ClassVar[int] = 1

    @dataclass(frozen=True)
    class Many(Base):
        e: int
        f: int
        g: int
        h: int
        i: int
        j: int = field(init=False)

        @classmethod
        def made(cls):
            return cls(1, 2, 3, 4, 5, 6)

    class Eight(NamedTuple):
        a: int; b: int; c: int; d: int; e: int; f: int; g: int; h: int

    class NoRecord:
        a: int; b: int; c: int; d: int; e: int; f: int; g: int; h: int; i: int
    """


@pytest.mark.parametrize(
    ("call", "counts"),
    [
        ("Many(1, 2, 3, 4, 5, f=6)", 0),
        ("Many(1, 2, 3, 4, 5, 6)", 1),
        ("records.Many(1, 2, 3, 4, 5, 6)", 1),
        ("Other(1, 2, 3, 4, 5, 6)", 1),
        ("Many(*values)", 1),
        ("Eight(1, 2, 3, 4, 5, 6, 7, 8)", 0),
        ("NoRecord(1, 2, 3, 4, 5, 6, 7, 8, 9)", 0),
    ],
)
def test_records_made_by_position(call: str, counts: int) -> None:
    imports = "from nki.r import Many, Eight, NoRecord\nfrom nki.r import Many as Other\nimport nki.r as records\n"
    found = records.positional([source(RECORDS, "nki/r.py"), source(f"{imports}made = {call}\n")])
    assert [line for line in found if "nki/a.py" in line] == [
        f"nki/a.py:4 Many of 9 fields, {call.count(',') + 1} by position"
    ] * counts
    assert [line.split()[0] for line in found if "nki/r.py" in line] == ["nki/r.py:20"]


def test_uses_of_the_environment_and_of_the_default_target() -> None:
    text = source("""
        from nki.options import from_environment
        from nki.target.load import DEFAULT_TARGET, load_target
        options = field(default_factory=from_environment)
        target = load_target(from_environment().target or DEFAULT_TARGET)
        other = load_target(name)
        shown = name == DEFAULT_TARGET
        """)
    assert choices.environment([text]) == {"nki/a.py": 2}
    assert choices.default_targets([text]) == {"nki/a.py": 1}


STATE = """
    TABLE = {1: 2}
    KNOWN = {}
    NOTED = {}  # by name
    TOLD = []
    '''Why it is there.'''
    # counted per process
    NUMBERS = itertools.count()
    WEAK: Any = WeakKeyDictionary()
    current = None

    def change(key):
        global current
        current = key
        KNOWN[key] = NOTED.pop(key)
        TOLD.append(key)

    @cache
    def bare(a):
        '''Says what it gives.'''

    @lru_cache(maxsize=4)
    def kept(a):
        '''The square, kept for the last four.'''

    @cache  # files are read once
    def told(a): ...
    """


def test_state_at_the_top_of_modules() -> None:
    found = {each.name: (each.kind, each.why) for each in state.state([source(STATE)])}
    assert found == {
        "KNOWN": ("changed", False),
        "NOTED": ("changed", True),
        "TOLD": ("changed", True),
        "NUMBERS": ("made to be changed", True),
        "WEAK": ("made to be changed", False),
        "current": ("rebound", False),
        "bare": ("cache", False),
        "kept": ("cache", True),
        "told": ("cache", True),
    }


def test_what_another_module_changes_is_state() -> None:
    table = source("TABLE = {}\nOTHER = {}\n", "nki/t.py")
    user = source("from nki.t import TABLE as t\nfrom nki import t as o\ndef f():\n    t[1] = 2\n    o.OTHER.clear()\n")
    assert [each.name for each in state.state([table, user])] == ["TABLE", "OTHER"]


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["house.py", *words])
    house.main()
    return capsys.readouterr().out


def test_another_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "src" / "nki").mkdir(parents=True)
    (tmp_path / "src" / "nki" / "a.py").write_text("class A: ...\nKNOWN = {}\ndef f():\n    KNOWN[1] = 2\n")
    found: dict[str, Any] = json.loads(printed(monkeypatch, capsys, "--json", "--root", str(tmp_path)))
    assert found["total"] == {"files": 1, "lines": 4, "code": 4, "comments": 0}
    assert found["state that nobody justifies"] == ["nki/a.py:2 KNOWN (changed)"]
    told = printed(monkeypatch, capsys, "--root", str(tmp_path))
    assert "state that nobody justifies: 1\n  nki/a.py:2 KNOWN (changed)" in told
    with pytest.raises(SystemExit, match="no package"):
        printed(monkeypatch, capsys, "--root", str(tmp_path / "src"))

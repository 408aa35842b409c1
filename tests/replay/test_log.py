"""Commits that move or rename leave the record of the replay as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts.replaying.log import offending
from scripts.replaying.places import ROOT
from scripts.replaying.record import FILE

from tests.packaging.building import run

RECORD = str(FILE.relative_to(ROOT))


class Repository:
    """A repository with one file beside its record."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        settings = ("user.name=t", "user.email=t@example.org", "commit.gpgsign=false")
        return run("git", *(part for each in settings for part in ("-c", each)), *arguments, cwd=self.root)

    def commit(self, subject: str, *, record: bool) -> None:
        for name in ("code", *(("record",) if record else ())):
            (self.root / name).write_text(subject)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", subject, "--message", "Move is a word of the body.")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    (tmp_path / "of").mkdir()
    return Repository(tmp_path / "of")


def subjects(root: Path) -> list[str]:
    return [each.split(" ", 1)[1] for each in offending(root, "record")]


def test_moves_and_renames_may_not_change_the_record(repository: Repository) -> None:
    for subject in ("Record", "Move a", "Rename b", "Order c", "Moved by a wheel", "Remove d", "move e"):
        repository.commit(subject, record=True)
    assert subjects(repository.root) == ["move e", "Rename b", "Move a"]


def test_moves_and_renames_that_leave_it_are_fine(repository: Repository) -> None:
    repository.commit("Record", record=True)
    repository.commit("Move a", record=False)
    repository.commit("Rename b", record=False)
    assert subjects(repository.root) == []


def test_the_oldest_commit_of_a_shallow_clone_is_not_judged(repository: Repository, tmp_path: Path) -> None:
    repository.commit("Record", record=True)
    repository.commit("Move a", record=False)
    repository.commit("Rename b", record=True)
    shallow = tmp_path / "shallow"
    for depth, found in ((2, ["Rename b"]), (1, [])):
        run("git", "clone", "--quiet", f"--depth={depth}", repository.root.as_uri(), shallow / str(depth), cwd=tmp_path)
        assert subjects(shallow / str(depth)) == found
    assert subjects(repository.root) == ["Rename b"]


def test_a_first_commit_is_judged(repository: Repository) -> None:
    repository.commit("Move here", record=True)
    assert subjects(repository.root) == ["Move here"]


def test_files_without_a_repository_of_their_own_have_no_log(repository: Repository) -> None:
    repository.commit("Move here", record=True)
    inner = repository.root / "archive"
    inner.mkdir()
    (inner / "record").touch()
    assert subjects(inner) == []


def test_this_checkout() -> None:
    assert offending(ROOT, RECORD) == [], "say in another commit why the record changes"

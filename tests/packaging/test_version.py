"""Which version a tree, a tag, an archive and a directory without git call themselves."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from packaging.version import Version
from tests.packaging.building import REPOSITORY, run

ASK = "import sys; sys.path.insert(0, 'src'); from nki.version import version; print(version())"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree outside any repository, with nothing in it but the module that tells the version."""
    package = tmp_path / "src" / "nki"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copy(REPOSITORY / "src" / "nki" / "version.py", package)
    return tmp_path


def ask(tree: Path, **environment: str) -> str:
    told = run(sys.executable, "-c", ASK, cwd=tree, env={**os.environ, **environment}).strip()
    assert str(Version(told)) == told, "not in normal form"
    return told


def git(tree: Path, *arguments: str) -> str:
    settings = ("user.name=t", "user.email=t@example.org", "commit.gpgsign=false", "tag.gpgsign=false")
    return run("git", *(part for setting in settings for part in ("-c", setting)), *arguments, cwd=tree).strip()


def commit(tree: Path) -> str:
    """An empty commit on top of what is there; its abbreviated name."""
    if not (tree / ".git").exists():
        git(tree, "init", "--quiet")
        (tree / ".gitignore").write_text("__pycache__\n")
        git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "one")
    return git(tree, "rev-parse", "--short=9", "HEAD")


def test_without_git_it_is_unknown(tree: Path) -> None:
    assert ask(tree) == "0.7.0.dev0+unknown"


def test_without_the_git_program_it_is_unknown(tree: Path) -> None:
    commit(tree)
    assert ask(tree, PATH="/nowhere") == "0.7.0.dev0+unknown"


def test_a_repository_without_commits_is_unknown(tree: Path) -> None:
    git(tree, "init", "--quiet")
    assert ask(tree) == "0.7.0.dev0+unknown"


def test_an_untagged_commit_is_a_development_version_with_its_name(tree: Path) -> None:
    name = commit(tree)
    assert ask(tree) == f"0.7.0.dev0+g{name}"


def test_a_tag_is_the_version_itself(tree: Path) -> None:
    commit(tree)
    git(tree, "tag", "v1.2.3")
    assert ask(tree) == "1.2.3"


def test_after_a_tag_it_sorts_between_the_tag_and_the_next(tree: Path) -> None:
    commit(tree)
    git(tree, "tag", "v1.2.3")
    commit(tree)
    name = commit(tree)
    told = ask(tree)
    assert told == f"1.2.4.dev2+g{name}"
    assert Version("1.2.3") < Version(told) < Version("1.2.4")


def test_other_tags_do_not_count(tree: Path) -> None:
    name = commit(tree)
    git(tree, "tag", "nightly")
    assert ask(tree) == f"0.7.0.dev0+g{name}"


@pytest.mark.parametrize("tagged", [False, True])
def test_changed_files_show(tree: Path, tagged: bool) -> None:
    commit(tree)
    if tagged:
        git(tree, "tag", "v1.2.3")
    with (tree / "src" / "nki" / "version.py").open("a") as file:
        file.write("# changed\n")
    assert re.fullmatch(r"(1\.2\.4|0\.7\.0)\.dev0\+g[0-9a-f]{9,}\.dirty", ask(tree))


def test_a_hook_of_another_repository_does_not_mislead(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    commit(other)
    git(other, "tag", "v9.9.9")
    name = commit(tree)
    assert ask(tree, GIT_DIR=str(other / ".git")) == f"0.7.0.dev0+g{name}"


def test_what_the_build_wrote_wins(tree: Path) -> None:
    commit(tree)
    (tree / "src" / "nki" / "VERSION").write_text("4.5.6\n")
    assert ask(tree) == "4.5.6"


def test_package_command_and_module_agree() -> None:
    module = run(sys.executable, "-c", "from nki.version import version; print(version())", cwd=REPOSITORY).strip()
    package = run(sys.executable, "-c", "import nki; print(nki.__version__)", cwd=REPOSITORY).strip()
    command = run(sys.executable, "-c", "from nki.tools.cli import main; main()", "--version", cwd=REPOSITORY)
    assert package == module
    assert module in command.split()

"""What runs when something is pushed, committed or released is there: workflows, hooks, the lock, the changelog."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from tests.packaging.building import REPOSITORY, run

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (REPOSITORY / "Makefile").read_text(), re.M))
PYTHONS = ("3.11", "3.12", "3.13")


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_workflows_are_there() -> None:
    assert {path.stem for path in WORKFLOWS} == {"tests", "wheels", "docs", "page", "nightly"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_what_one_needs(path: Path) -> None:
    flow = loaded(path)
    assert flow["name"] == path.stem and flow[True]  # YAML reads `on` as true
    assert flow["permissions"] == {"contents": "read"}, "no job may write, unless it says so itself"
    for job in flow["jobs"].values():
        assert job["runs-on"] and job["timeout-minutes"] <= 360
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/x@v1")) for step in job["steps"])


def commands() -> list[Any]:
    """Every command of workflows and hooks, with the values of the matrix in the place of its names."""
    found = []
    for path in WORKFLOWS:
        for name, job in loaded(path)["jobs"].items():
            matrix = job.get("strategy", {}).get("matrix", {})
            for step in job["steps"]:
                lines = [step["run"]] if "run" in step else []
                for key, values in matrix.items():
                    lines = [re.sub(rf"\${{{{ *matrix\.{key} *}}}}", value, line) for line in lines for value in values]
                found += [pytest.param(line, id=f"{path.stem}-{name}: {line}") for line in dict.fromkeys(lines)]
    for repository in loaded(REPOSITORY / ".pre-commit-config.yaml")["repos"]:
        found += [pytest.param(hook["entry"], id=f"hook-{hook['id']}") for hook in repository["hooks"]]
    return found


@pytest.mark.parametrize("command", commands())
def test_what_a_command_calls_exists(command: str) -> None:
    assert "${{" not in command, "values go by the environment, where a shell does not read them"
    words = command.split()
    if words[0] == "make":
        assert words[1:] and set(words[1:]) <= TARGETS
    elif words[0] in ("bash", "python3"):
        assert (REPOSITORY / words[1]).is_file()
    else:
        assert words[0] == "gh"


def test_the_tests_run_on_every_python_that_is_promised() -> None:
    matrix = loaded(REPOSITORY / ".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert tuple(matrix["python"]) == PYTHONS and project["requires-python"] == f">={PYTHONS[0]}"


def test_issue_forms_have_what_a_form_needs() -> None:
    forms = [path for path in (REPOSITORY / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert forms
    for form in map(loaded, forms):
        assert form["name"] and form["description"] and form["body"]
        assert all(item["type"] == "textarea" and item["attributes"]["label"] for item in form["body"])
        assert len({item["id"] for item in form["body"]}) == len(form["body"])


# --- the lock


def locked() -> list[Requirement]:
    lines = (REPOSITORY / "requirements-dev.lock").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_python_has_the_same_versions() -> None:
    """What mypy says follows from the stubs of the packages."""
    names = [normal(need.name) for need in locked()]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_what_the_project_asks_for(python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    versions: dict[str, Version] = {}
    for need in locked():
        (pin,) = need.specifier
        assert pin.operator == "=="
        if need.marker is None or need.marker.evaluate(here):
            versions[normal(need.name)] = Version(pin.version)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for need in map(Requirement, [*project["dependencies"], *(line for extra in extras.values() for line in extra)]):
        if need.name != "torch":  # scripts/install_torch.sh: another build on another index
            assert versions[normal(need.name)] in need.specifier, f"{need}: run `make lock`"


def test_what_is_set_up_is_what_is_locked(tmp_path: Path) -> None:
    """The commands that `make env` would run in an empty environment, and with another lock."""
    for lock, option in (("requirements-dev.lock", " --constraint requirements-dev.lock"), ("", "")):
        command = ("make", "--dry-run", "env", f"VENV={tmp_path}", *(() if lock else ("LOCK=",)))
        outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "LOCK")}
        lines = run(*command, cwd=REPOSITORY, env=outside).splitlines()
        installing = [" ".join(line.split()) for line in lines if "pip" in line and "--editable '.[" in line]
        assert len(installing) == 2 and all(f"install{option} --editable" in line for line in installing)


# --- releases


def notes(version: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "scripts/release_notes.py", version)
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_the_notes_of_a_release_are_its_section() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    found = notes("Unreleased").stdout
    assert found.startswith("### ") and found in text and "## [" not in found


def test_a_release_without_notes_is_none() -> None:
    done = notes("v99.0.0")
    assert done.returncode and "no section [99.0.0]" in done.stderr and not done.stdout


def test_the_changelog_keeps_its_form() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.M)) <= kinds

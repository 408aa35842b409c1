"""Code in the documents runs, links lead somewhere, and tables say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nki.interop.torch import devices
from nki.options import API_VERSIONS, ENVIRONMENT, from_environment
from nki.store import settings
from tests.together import together

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
DOCUMENTS += sorted((ROOT / "docs").glob("*.md"))
BLOCKS = [
    pytest.param(path, block, id=f"{path.name}-{i}")
    for path in DOCUMENTS
    # The declaration is run by tests/packaging/test_contributing.py, the tutorial by test_tutorial.py.
    if path.name not in ("CONTRIBUTING.md", "tutorial.md")
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.S))
]


@pytest.mark.parametrize(("path", "block"), BLOCKS)
def test_python_blocks_run(path: Path, block: str, tmp_path: Path) -> None:
    file = tmp_path / "block.py"
    file.write_text(block)
    exec(compile(block, str(file), "exec"), {"__name__": "document"})


@together("path", DOCUMENTS)
def test_links_to_files_exist(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (path.parent / target).exists(), target


def test_the_table_of_switches_is_the_one_in_the_code() -> None:
    text = (ROOT / "docs/environment.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.M)
    assert rows == [*((name, meaning) for name, _, meaning in ENVIRONMENT), *settings.ENVIRONMENT, *devices.ENVIRONMENT]


def test_options_come_from_the_environment() -> None:
    options = from_environment({"NKI_SIMULATOR": "1", "NKI_PRECISE_FP": "0", "NKI_DISABLE_RULES": "a.b, c"})
    assert options.simulator
    assert not options.precise_fp
    assert options.disabled_rules == {"a.b", "c"}
    assert options.api in API_VERSIONS
    assert from_environment({}) == from_environment({"NKI_SIMULATOR": "0"})

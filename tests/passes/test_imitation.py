"""The table of what the device's compiler does, and what the setting that chooses its column reaches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import UsageError
from nki.options import IMITATE, Options, from_environment
from nki.passes import cse
from nki.passes.context import Context
from nki.passes.imitation import imitation, rules
from tests.passes.kernels import TRN2, traced
from tests.tools.kernels import GOOD, SMALL
from tests.tools.running import nki as nki_command

DOCUMENT = Path(__file__).parents[2] / "docs" / "compiler.md"


def test_each_rule_says_where_it_comes_from_and_what_it_changes() -> None:
    for rule in rules():
        assert rule.vendor != rule.none, f"{rule.name} changes nothing"
        assert rule.source and rule.measured and rule.changes


def shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_the_document_has_the_table() -> None:
    section = DOCUMENT.read_text().split("## Imitation")[1].split("## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    assert rows == [(rule.name, shown(rule.vendor), shown(rule.none)) for rule in rules()]


def test_the_environment_chooses_the_column() -> None:
    assert from_environment({}).imitate == "vendor"
    assert from_environment({"NKI_IMITATE": "none"}).imitate == "none"
    with pytest.raises(UsageError) as caught:
        from_environment({"NKI_IMITATE": "gcc"})
    assert caught.value.code == "option.value" and "vendor, none" in caught.value.rule
    assert {setting: Context(TRN2, Options(imitate=setting)).imitation for setting in IMITATE} == {
        setting: imitation(setting) for setting in IMITATE
    }


def twice(a: Any) -> Any:
    """Equal results of two lines."""
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    x, y, z, total = (nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf) for _ in range(4))
    nisa.dma_copy(dst=x, src=a)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=3.0)
    nisa.tensor_scalar(dst=z, data=x, op0=nl.multiply, operand0=3.0)
    nisa.tensor_tensor(dst=total, data1=y, data2=z, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


def test_without_imitation_results_of_all_lines_are_merged() -> None:
    source = traced(twice, np.ones((128, 8), np.float32))[0]
    counts = {
        setting: sum(1 for _ in cse.run(source, Context(TRN2, Options(imitate=setting))).body.walk())
        for setting in IMITATE
    }
    assert counts == {"vendor": 5, "none": 4}


def test_a_call_is_compiled_anew_under_the_other_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, a = nki.jit(twice), np.arange(1024, dtype=np.float32).reshape(128, 8)
    found = {}
    for setting in IMITATE:
        monkeypatch.setenv("NKI_IMITATE", setting)
        np.testing.assert_array_equal(kernel(a), 6 * a)
        found[setting] = kernel.report
        profile = kernel.profile
        assert profile is not None
        assert sum(kernel.report.instructions().values()) == len(profile["instructions"])
    assert {setting: report.imitate for setting, report in found.items()} == {each: each for each in IMITATE}
    assert "imitates no other" in found["none"].provenance() and "imitates" not in found["vendor"].provenance()
    assert sum(found["none"].instructions().values()) < sum(found["vendor"].instructions().values())


@pytest.mark.parametrize("command", ["compile", "check", "run", "profile", "ir"])
def test_commands_that_compile_take_the_setting(command: str, tmp_path: Path) -> None:
    """The command line comes before the environment, and a name that is none is a mistake."""
    path = tmp_path / "kernels.py"
    path.write_text(GOOD)
    words = [command, f"{path}::double", *SMALL, "--target", "trn2"]
    nki_command(*words, "--imitate", "none")
    assert "gcc" in nki_command(*words, "--imitate", "gcc", code=2).output


def test_what_is_compiled_already_takes_no_setting(tmp_path: Path) -> None:
    path, file = tmp_path / "kernels.py", tmp_path / "double.neff"
    path.write_text(GOOD)
    words = [f"{path}::double", *SMALL, "--target", "trn2"]
    nki_command("compile", *words, "--imitate", "none", "--emit", "neff", "-o", str(file))
    assert "imitate=none" in nki_command("inspect", str(file)).stdout
    for command in ("run", "profile"):
        told = nki_command(command, str(file), "--imitate", "vendor", code=2).output
        assert "--imitate with" in told and "it is compiled" in told

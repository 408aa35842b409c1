"""What type checkers see: kernels with their parameters, and names that do not exist."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_overloads

import pytest

import nki

_RIGHT = """
from typing import Any

import nki
import nki.compiler as ncc
import nki.isa as nisa
import nki.lang as short
import nki.language as nl


@nki.jit
def bare(a: Any, n: int = 4) -> Any: ...


@nki.jit()
def called(a: Any, n: int = 4) -> Any: ...


@nki.jit(api="0.5", compile_config=ncc.CompileConfig(), platform_target="trn2")
def configured(a: Any, n: int = 4) -> Any: ...


def plain(a: Any, n: int = 4) -> Any: ...


reveal_type(bare)
reveal_type(called)
reveal_type(configured)
reveal_type(nki.jit(plain))
reveal_type(nki.jit(plain, api="0.5"))
reveal_type(bare[2])
reveal_type(nki.simulate(bare))
reveal_type(nki.simulate(plain))
reveal_type(nki.simulate(bare)[2])
bare(0, n=1)
bare.report, bare.profile, bare.func
nki.__version__, nl.bool, nl.range(4), nl.exp, nisa.vector_engine, nisa.nc_matmul, short.exp, short.bool, short.range(2)
"""
_KERNELS = 9

_WRONG = """
import nki
import nki.collectives
import nki.compiler
import nki.isa as nisa
import nki.lang
import nki.language as nl
from nki.language import softmaxx


@nki.jit
def kernel(a: int) -> None: ...


nki.jitt
nl.value
nl.sbuf(1)
nisa.tensor_tensr
nki.collectives.all_gathr
nki.compiler.CompileConfigs
nki.lang.expp
kernel(b=1)
kernel()
kernel.reports
nki.jit(kernel, compile_confg=None)
"""


def _mypy(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    """Line and text of what mypy says, in the order of the lines."""
    file = tmp_path / "user.py"
    file.write_text(text)
    command = [sys.executable, "-m", "mypy", "--config-file=", "--follow-imports=silent", "--no-error-summary"]
    found = subprocess.run(
        [*command, f"--cache-dir={tmp_path / 'cache'}", str(file)],
        capture_output=True,
        text=True,
        env={"MYPYPATH": str(Path(nki.__file__).parents[1])},
        check=False,
    )
    return [(int(line.split(":")[1]), line.split(": ", 1)[1]) for line in found.stdout.splitlines()]


@pytest.mark.slow
def test_kernels_have_the_parameters_of_their_functions(tmp_path: Path) -> None:
    found = [text for _, text in _mypy(tmp_path, _RIGHT)]
    assert [re.sub(r"^note: ", "", text) for text in found] == [
        'Revealed type is "nki.kernel.Kernel[[a: Any, n: int =]]"'
    ] * _KERNELS


@pytest.mark.slow
def test_what_does_not_exist_is_an_error(tmp_path: Path) -> None:
    wrong = {
        n
        for n, line in enumerate(_WRONG.splitlines(), 1)
        if "softmaxx" in line or n > _WRONG[: _WRONG.index("nki.jitt")].count("\n")
    }
    assert {line for line, _ in _mypy(tmp_path, _WRONG)} == wrong


def test_jit_has_a_form_for_each_way_to_write_it() -> None:
    """With and without brackets, and called with a function."""
    forms = [inspect.signature(form) for form in get_overloads(nki.jit)]
    assert [str(form.return_annotation) for form in forms] == ["Kernel[P]", "Callable[[Callable[P, Any]], Kernel[P]]"]
    assert all("api" in form.parameters for form in forms)


@pytest.mark.parametrize("name", ["nki", "nki.language", "nki.lang", "nki.isa", "nki.collectives", "nki.compiler"])
def test_no_function_hides_misspelt_names_from_type_checkers(name: str) -> None:
    """A ``__getattr__`` of a module makes every name valid for them, so that they must not see it."""
    tree = ast.parse(inspect.getsource(importlib.import_module(name)))
    assert not [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "__getattr__"]
    with pytest.raises(AttributeError, match="no attribute"):
        _ = importlib.import_module(name).no_such_name

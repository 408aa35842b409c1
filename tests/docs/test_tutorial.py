"""The tutorial as its reader follows it: one file that grows, commands on it, and output that is really printed."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner

from nki.tools.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(python|sh|text)\n(.*?)```", PAGE, re.S)
SOURCE = "\n\n".join(text for kind, text in BLOCKS if kind == "python")
COMMANDS = re.findall(r"^nki .*", "\n".join(text for kind, text in BLOCKS if kind == "sh"), re.M)
FURTHER = re.findall(r"^nki .*", (ROOT / "README.md").read_text(), re.M)
"""Commands of README, which are about the same file."""
ELSEWHERE = re.findall(
    r"^ *(nki \w+ (?:--all )?kernels\.py::\w+(?: --?\S+| [\w.]+=\S+| \S+)*)",
    "\n".join(
        [path.read_text() for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "tutorial.md"]
        + [main.get_help(Context(main))]
    ),
    re.M,
)
"""Commands of other pages and of the help on a file of this name."""
SHOWN = [part for kind, text in BLOCKS if kind == "text" for part in re.split(r"^\.\.\.$", text, flags=re.M)]

LAYER_NORM = """
@nki.jit
def layer_norm(x, gamma, beta):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    gammas = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    betas = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=gammas, src=gamma.reshape((1, columns)).broadcast(0, 128))
    nisa.dma_copy(dst=betas, src=beta.reshape((1, columns)).broadcast(0, 128))
    for here, count in pieces(rows, 128):
        tile = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        squares = nl.ndarray((count, columns), dtype=nl.float32, buffer=nl.sbuf)
        column = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[here])
        nisa.tensor_reduce(dst=column, op=nl.add, data=tile, axis=1)
        nisa.tensor_scalar(dst=column, data=column, op0=nl.multiply, operand0=1 / columns)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=column)
        nisa.tensor_tensor(dst=squares, data1=tile, data2=tile, op=nl.multiply)
        nisa.tensor_reduce(dst=column, op=nl.add, data=squares, axis=1)
        nisa.tensor_scalar(
            dst=column, data=column, op0=nl.multiply, operand0=1 / columns, op1=nl.add, operand1=1e-5
        )
        nisa.activation(dst=column, op=nl.rsqrt, data=column)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=column)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=gammas[0:count], op=nl.multiply)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=betas[0:count], op=nl.add)
        nisa.dma_copy(dst=out[here], src=tile)
    return out


if __name__ == "__main__":
    x, gamma, beta = (random.standard_normal(n).astype(np.float32) for n in ((200, 1000), 1000, 1000))
    np.testing.assert_allclose(layer_norm(x, gamma, beta), layer_norm_reference(x, gamma, beta), rtol=1e-4, atol=1e-5)
"""
"""The exercise at the end, from the words of its hints and of the table."""


def _words(text: str) -> str:
    return " ".join(text.split())


def _run(file: Path) -> str:
    """What a file prints that runs as a program."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(file.read_text(), str(file), "exec"), {"__name__": "__main__"})
    return printed.getvalue()


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the page's file prints, and its commands."""
    file = tmp_path_factory.mktemp("tutorial") / "kernels.py"
    file.write_text(SOURCE + LAYER_NORM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(file.parent)
        patch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
        printed = [_run(file)]
        for command in dict.fromkeys([*COMMANDS, *FURTHER]):
            result = CliRunner().invoke(main, shlex.split(command)[1:])
            assert result.exit_code == ("too_tall --arg" in command), f"{command}\n{result.output}"
            printed.append(result.output)
    return _words("\n".join(printed))


@pytest.mark.parametrize("shown", SHOWN, ids=[_words(part)[:40] for part in SHOWN])
def test_what_the_page_shows_is_printed(shown: str, output: str) -> None:
    assert shown.strip()
    assert _words(shown) in output


def test_commands_of_other_pages_fit_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the page has a kernel of that name itself, or the command reads a capture, or what was fitted to one."""
    names = re.findall(r"(?m)^@nki\.jit\ndef (\w+)", SOURCE)
    fitting = [each for each in ELSEWHERE if not {"--measured", "mine.toml"} & set(each.split())]
    mine = [each for each in fitting if re.search(r"::(\w+)", each)[1] in names]  # type: ignore[index]
    assert {command.split()[1] for command in mine} >= {"profile", "compile", "check"}
    (tmp_path / "kernels.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    for command in dict.fromkeys(mine):
        result = CliRunner().invoke(main, shlex.split(command)[1:])
        assert result.exit_code == 0, f"{command}\n{result.output}"


def test_the_commands_are_tried() -> None:
    assert [command.split()[1] for command in COMMANDS] == [
        "check",
        "compare",
        "check",
        "explain",
        "profile",
        "explorer",
    ]
    assert {command.split()[1] for command in FURTHER} == {"check", "explain", "compare", "profile", "explorer"}

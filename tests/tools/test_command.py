"""The command as a program: start-up, help, streams and colours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nki.tools.cli import COMMANDS
from nki.version import version
from tests.tools.kernels import GOOD, SEVERAL, SMALL, write
from tests.tools.running import nki

RUN = (sys.executable, "-m", "nki")


def process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *words], capture_output=True, text=True, check=False)


def test_version() -> None:
    assert process("--version").stdout == f"nki {version()}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    shown = nki(name, "--help").stdout
    assert "Usage:" in shown
    assert "--json" in shown


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = "import sys; from nki.tools.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "nki.tools.cli" in loaded
    heavy = ("nki.tools.run", "nki.ir", "rich", "torch", "torch_mlir", "jax")
    assert not [name for name in loaded if name.startswith(heavy)]


def test_commands_that_compile_nothing_load_no_mlir() -> None:
    names = ["explain", "targets", "rules"]
    code = (
        "import sys; from nki.tools.cli import main\n"
        f"for name in {names}:\n    try: main([name])\n    except SystemExit as end: assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr.split()
    assert {f"nki.tools.{name}" for name in names} <= set(loaded)
    assert not [module for module in loaded if module.startswith(("torch", "jax", "nki.ir"))]


def test_errors_go_to_stderr_and_results_to_stdout(tmp_path: Path) -> None:
    good = process("run", write(tmp_path, GOOD), *SMALL)
    assert (good.returncode, good.stderr) == (0, "")
    bad = process("run", write(tmp_path, SEVERAL), *SMALL)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error[kernel.name]")


def test_json_errors_go_to_stdout(tmp_path: Path) -> None:
    bad = process("run", write(tmp_path, GOOD), "--arg", "a=1", "--json")
    assert json.loads(bad.stdout)["error"]["severity"] == "error"
    assert bad.stderr == ""


def test_no_colours_in_a_pipe(tmp_path: Path) -> None:
    for words in (["explain", "tensor.shape"], ["run", write(tmp_path, GOOD), *SMALL], ["run", "x.py"]):
        done = process(*words)
        assert "\x1b" not in done.stdout + done.stderr


def test_an_error_of_this_package_stays_a_traceback(tmp_path: Path) -> None:
    """Nobody should be told to correct a kernel that is right."""
    broken = "import nki.frontend.trace as trace\ntrace.Tracer.issue = trace.attach\n" + GOOD
    done = process("run", write(tmp_path, broken), *SMALL)
    assert "Traceback" in done.stderr
    assert "kernel.exception" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo terminal")
def test_colours_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen([*RUN, "run", "nowhere.py"], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text = b""
    while part := _read(ours):
        text += part
    os.close(ours)
    assert child.wait() == 2
    assert b"\x1b[" in text
    assert b"kernel.file" in text


def _read(terminal: int) -> bytes:
    """What is said next; nothing, in one way or another, if the program has ended."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""

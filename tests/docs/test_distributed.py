"""The blocks of docs/distributed.md that run under torchrun, one after the other in the same processes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.interop.torch.distributed.launching import torchrun

DOCUMENT = Path(__file__).parents[2] / "docs" / "distributed.md"

_EACH = """
import sys

for path in {paths}:
    exec(compile(open(path).read(), path, "exec"), {{"__name__": "document"}})
    sys.stdout.write(f"ran {{path}}\\n")  # in one piece, since the other process writes at the same time
"""


def test_blocks_run_in_two_processes(tmp_path: Path) -> None:
    blocks = re.findall(r"```python torchrun\n(.*?)```", DOCUMENT.read_text(), re.S)
    paths = []
    for number, block in enumerate(blocks):
        paths.append(str(tmp_path / f"block{number}.py"))
        Path(paths[-1]).write_text(block)
    program = tmp_path / "blocks.py"
    program.write_text(_EACH.format(paths=paths))
    found = torchrun(str(program), 2)
    assert found.returncode == 0, found.stderr[-4000:]
    assert found.stdout.count("ran ") == 2 * len(blocks) > 0

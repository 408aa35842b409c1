"""The blocks of docs/distributed.md that run under torchrun, one after the other in the same processes."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

DOCUMENT = Path(__file__).parents[4] / "docs" / "distributed.md"


def run() -> int:
    """Each as a program of its own, from a file, since kernels in it are read; how many there were."""
    blocks = re.findall(r"```python torchrun\n(.*?)```", DOCUMENT.read_text(), re.S)
    with TemporaryDirectory() as folder:
        for number, block in enumerate(blocks):
            path = Path(folder, f"block{number}.py")
            path.write_text(block)
            exec(compile(block, str(path), "exec"), {"__name__": "document"})
    return len(blocks)

"""Generated files are what their scripts make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_exports_of_nki_isa_follow_the_declarations() -> None:
    code = "import runpy; print(runpy.run_path('scripts/generate_isa.py')['text'](), end='')"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert made == (ROOT / "src/nki/isa/__init__.py").read_text(), "run `make gen`"

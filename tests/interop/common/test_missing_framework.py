"""What is said where a framework is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nki.core.install import install_extra


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_missing_framework_is_named_with_its_extra(framework: str) -> None:
    script = (
        f"import sys; sys.modules[{framework!r}] = None\n"
        "try:\n"
        f"    import nki.interop.{framework}\n"
        "except ImportError as error:\n"
        "    print(error.code, error)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "install.framework" in found.stdout, found.stderr
    assert install_extra(framework) in found.stdout

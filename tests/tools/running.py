"""Runs the command in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from nki.tools.cli import main


def nki(*words: str, code: int = 0) -> Result:
    """Run `nki WORDS`; the exit code must be `code`, and no exception may have escaped."""
    result = CliRunner().invoke(main, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
    assert "Traceback" not in result.output
    return result


def nki_json(*words: str, code: int = 0) -> Any:
    """Run `nki WORDS --json`; stdout must be one JSON document."""
    return json.loads(nki(*words, "--json", code=code).stdout)

"""Build hook of the distributions below ``distributions/``: a wheel carries a package of ``src``, a checkout its path.

A list of files in ``pyproject.toml`` would be copied by an editable installation too, and hide later edits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CarriedSource(BuildHookInterface[Any]):
    """Adds the package that the option ``package`` names to wheels; an editable installation finds it where it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before files are collected; `version` is the kind of build, ``standard`` or ``editable``."""
        if version != "editable":
            package = str(self.config["package"])
            build_data["force_include"][str(Path(self.root, "../../src", package).resolve())] = package

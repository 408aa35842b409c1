"""Build hook: what is built carries its version in the file ``nki/VERSION``; the source tree is not written to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PLACES = {"wheel": "nki/VERSION", "sdist": "src/nki/VERSION"}


class VersionFile(BuildHookInterface[Any]):
    """Adds ``VERSION`` to wheels and source archives; an editable installation asks its checkout instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before files are collected; `version` is the kind of build, ``standard`` or ``editable``."""
        carried = Path(self.root, "src/nki/VERSION").is_file()  # building from a source archive
        if version == "editable" or carried:
            return
        self._scratch = tempfile.TemporaryDirectory()
        written = Path(self._scratch.name, "VERSION")
        written.write_text(self.metadata.version + "\n", encoding="ascii")
        build_data["force_include"][str(written)] = _PLACES[self.target_name]

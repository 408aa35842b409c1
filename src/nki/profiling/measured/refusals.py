"""The errors of measured profiles: which table and column, what was found, and what the schema says."""

from __future__ import annotations

from typing import Any

from nki.core.errors import ArtifactError
from nki.core.source import UNKNOWN
from nki.profiling.errors import CONTROL

_RULE = "a measured profile is a folder of Parquet tables of schema 7.4.0, as profile-schema-reference.rst lists them"
_FIXES = {
    "measured.folder": "name the folder with Instruction.parquet and Metadata.parquet that neuron-explorer wrote",
    "measured.version": "process the capture again with a neuron-explorer whose schema is 7.4",
    "measured.size": "capture a smaller part of the program",
    "measured.calibrate": "capture a kernel with more kinds of instructions, or with tiles of several sizes",
    "measured.match": "profile the kernel and the arguments that were captured",
}
_AGAIN = "process the capture again with neuron-explorer; do not use tables that something else changed"


def refused(code: str, message: str, **facts: Any) -> ArtifactError:
    """The error for a profile that cannot be read; a terminal obeys nothing that it repeats.

    Args:
        code: "measured." and what is wrong.
        message: with the table, the column, what was found and what belongs there.
        facts: the same for programs.
    """
    shown = CONTROL.sub("\N{REPLACEMENT CHARACTER}", message).encode("utf-8", "replace").decode()
    return ArtifactError(
        code, shown, rule=_RULE, fix=_FIXES.get(code, _AGAIN), facts={"profile": "measured", **facts}, location=UNKNOWN
    )

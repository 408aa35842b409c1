"""What the process of a candidate is asked, and the forms in which it answers; JSON on both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nki.compiler import AddressRotation, CompileConfig
from nki.options import Options


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel, and the sets of arguments that it is traced for.

    Attributes:
        kernel: ``FILE::NAME`` in the folder of the process.
        sets: for each trace the arguments as on the command line; arrays have a shape and a dtype, and no values.
        lnc: cores, as ``kernel[lnc]``; None if no grid was asked for.
        options: of the trace.
        grid: of a kernel of the first NKI, as `nki.tools.kernel_file.on_grid` takes it.
    """

    kernel: str
    sets: list[list[str]]
    lnc: int | None
    options: Options
    grid: tuple[int | str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        options = asdict(self.options)
        options["disabled_rules"] = sorted(self.options.disabled_rules)
        written = {"kernel": self.kernel, "sets": self.sets, "lnc": self.lnc, "options": options}
        return {**written, "grid": list(self.grid)}


def task_of(written: Mapping[str, Any]) -> Task:
    """The task that `Task.to_json` wrote."""
    options = {**written["options"], "disabled_rules": frozenset(written["options"]["disabled_rules"])}
    return Task(written["kernel"], written["sets"], written["lnc"], Options(**options), tuple(written["grid"]))


def config_read(written: Mapping[str, Any]) -> CompileConfig:
    """Settings that `CompileConfig.plain` gave, or somebody else wrote.

    Raises:
        TypeError, ValueError: there is no such setting or value; LaunchError: a value is of another type.
    """
    return CompileConfig(**{**written, "address_rotation": AddressRotation(written["address_rotation"])})

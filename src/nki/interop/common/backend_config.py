"""What a call of a kernel says about itself in HLO: the fields of the official lowering's ``backend_config``."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nki.frontend.host import kind_of

TARGET = "AwsNeuronCustomNativeKernel"
"""Target of the custom call (nki/guides/framework_custom_op.rst)."""

KERNEL_VERSION = 1

NONE = "{}"
"""The constants of a kernel that has tensors only."""


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """The documented fields.

    Attributes:
        binary: which compiled kernel. The official toolchain has a path here; this one has a hash, because compiled
            kernels are found by what they are made from.
        input_names, output_names: of the kernel's tensors, in the order of operands and results.
        func_name: of the kernel.
        grid: the launch grid; empty if none was given.
        has_collectives: whether some instruction is a collective one.
        constants: arguments that are no tensors, by name, as JSON; null where one of them cannot be written so. It is
            not among the documented fields: a program that was exported is compiled from the kernel's source again.
    """

    binary: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    func_name: str
    grid: tuple[int, ...]
    has_collectives: bool
    constants: str = NONE

    def encoded(self) -> str:
        """Base64 of JSON, as in the official lowering."""
        fields: dict[str, Any] = {
            "kernel_version": KERNEL_VERSION,
            "klir_binary": {
                "binary": self.binary,
                "input_names": list(self.input_names),
                "output_names": list(self.output_names),
            },
            "func_name": self.func_name,
            "grid": list(self.grid),
            "has_collectives": self.has_collectives,
        }
        if self.constants != NONE:
            fields["constants"] = json.loads(self.constants)
        return base64.b64encode(json.dumps(fields).encode()).decode("ascii")

    def attributes(self, ir: Any) -> dict[str, Any]:
        """Return the fields as attributes of a typed call, which has no lists of strings: names are joined by commas.

        Args:
            ir: MLIR's Python module in whose current context they are made.
        """
        text = ir.StringAttr.get
        binary = {
            "binary": text(self.binary),
            "input_names": text(",".join(self.input_names)),
            "output_names": text(",".join(self.output_names)),
        }
        return {
            "func_name": text(self.func_name),
            "grid": ir.DenseI64ArrayAttr.get(list(self.grid)),
            "has_collectives": ir.BoolAttr.get(self.has_collectives),
            "kernel_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), KERNEL_VERSION),
            "klir_binary": ir.DictAttr.get(binary),
        }


def binary_in(encoded: str) -> str:
    """Which compiled kernel the text that `BackendConfig.encoded` made names."""
    return str(json.loads(base64.b64decode(encoded))["klir_binary"]["binary"])


def constants_of(bound: Mapping[str, Any]) -> str:
    """The arguments of a call that are no arrays, as JSON; "null" if there is one that JSON does not have.

    Args:
        bound: the arguments by parameter.
    """
    found = {name: value for name, value in bound.items() if kind_of(value) is None}
    plain = all(value is None or type(value) in (bool, int, float, str) for value in found.values())
    return json.dumps(found) if plain else "null"

"""What a call of a kernel says about itself in HLO: the fields of the official lowering's ``backend_config``."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

TARGET = "AwsNeuronCustomNativeKernel"
"""Target of the custom call (nki/guides/framework_custom_op.rst)."""

KERNEL_VERSION = 1


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
    """

    binary: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    func_name: str
    grid: tuple[int, ...]
    has_collectives: bool

    def encoded(self) -> str:
        """Base64 of JSON, as in the official lowering."""
        fields = {
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
        return base64.b64encode(json.dumps(fields).encode()).decode("ascii")

    def attributes(self, ir: Any) -> dict[str, Any]:
        """The same fields as attributes of a typed call, which has no lists of strings: names are joined by commas.

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

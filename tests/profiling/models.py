"""A small model with modules, written as MLIR."""

from __future__ import annotations

from nki.graph.compile import compile_module
from nki.profiling.record import Profile

_TEXT = """
#loc0 = loc(fused<{nki.modules = [["", "Model"], ["layers.0", "Linear"]], nki.operation = "aten.mm"}>["model.py":1:1])
#loc1 = loc(fused<{nki.modules = [["", "Model"], ["layers.1", "Linear"]], nki.operation = "aten.mm"}>["model.py":2:1])
#loc2 = loc(fused<{nki.modules = [["", "Model"], ["act", "Tanh"]], nki.operation = "aten.tanh"}>["model.py":3:1])
func.func @main(%x: tensor<128x512xf32>, %v: tensor<512x512xf32>, %w: tensor<512x512xf32>) -> tensor<128x512xf32> {
  %0 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0]
    : (tensor<128x512xf32>, tensor<512x512xf32>) -> tensor<128x512xf32> loc(#loc0)
  %1 = stablehlo.tanh %0 : tensor<128x512xf32> loc(#loc2)
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0]
    : (tensor<128x512xf32>, tensor<512x512xf32>) -> tensor<128x512xf32> loc(#loc1)
  %3 = stablehlo.tanh %2 : tensor<128x512xf32> loc(#loc2)
  return %3 : tensor<128x512xf32>
}
"""


def modules_profile() -> Profile:
    """Two kernels, each a product in a module of its own and a function in one that both share."""
    return compile_module(_TEXT, target="trn2", name="model").profile()

// Attention, which a pattern finds, between a product and a function of elements.
func.func @main(%x: tensor<1x2x256x32xf32> loc("x"), %w: tensor<32x32xf32> loc("w")) -> tensor<1x2x256x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %scale = stablehlo.constant dense<0.125> : tensor<1x2x256x256xf32>
  %q = stablehlo.dot_general %x, %w, contracting_dims = [3] x [0]
    : (tensor<1x2x256x32xf32>, tensor<32x32xf32>) -> tensor<1x2x256x32xf32> loc("model.py":3:5)
  %s = stablehlo.dot_general %q, %x, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
    : (tensor<1x2x256x32xf32>, tensor<1x2x256x32xf32>) -> tensor<1x2x256x256xf32> loc("model.py":4:5)
  %t = stablehlo.multiply %s, %scale : tensor<1x2x256x256xf32> loc("model.py":4:5)
  %m = stablehlo.reduce(%t init: %low) applies stablehlo.maximum across dimensions = [3]
    : (tensor<1x2x256x256xf32>, tensor<f32>) -> tensor<1x2x256xf32> loc("model.py":5:5)
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1, 2] : (tensor<1x2x256xf32>) -> tensor<1x2x256x256xf32>
  %d = stablehlo.subtract %t, %mb : tensor<1x2x256x256xf32> loc("model.py":5:5)
  %e = stablehlo.exponential %d : tensor<1x2x256x256xf32> loc("model.py":5:5)
  %n = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [3]
    : (tensor<1x2x256x256xf32>, tensor<f32>) -> tensor<1x2x256xf32> loc("model.py":5:5)
  %nb = stablehlo.broadcast_in_dim %n, dims = [0, 1, 2] : (tensor<1x2x256xf32>) -> tensor<1x2x256x256xf32>
  %p = stablehlo.divide %e, %nb : tensor<1x2x256x256xf32> loc("model.py":5:5)
  %o = stablehlo.dot_general %p, %x, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
    : (tensor<1x2x256x256xf32>, tensor<1x2x256x32xf32>) -> tensor<1x2x256x32xf32> loc("model.py":6:5)
  %r = stablehlo.tanh %o : tensor<1x2x256x32xf32> loc("model.py":7:5)
  return %r : tensor<1x2x256x32xf32>
}

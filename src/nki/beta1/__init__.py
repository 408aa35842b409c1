"""What remains of the first NKI, which lived in neuronx-cc: the annotations that kernels of today import from there."""

"""Kernels with device loops: `accepted` with NumPy references, `rejected` with the place and code of the error."""

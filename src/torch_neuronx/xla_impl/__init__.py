"""Where models that were written for PyTorch/XLA import from; `ops` has the decorator of kernels of the first NKI."""

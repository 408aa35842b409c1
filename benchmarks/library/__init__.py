"""The kernel library: errors, predicted times and shares of the roofline, beside the published kernels."""

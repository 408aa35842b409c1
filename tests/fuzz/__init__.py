"""Random legal kernels, run in every mode and in hostile orders."""

"""What the arguments of several kernels are made of."""

"""A model on two cores: which kernels are cut in two, and where the cores meet."""

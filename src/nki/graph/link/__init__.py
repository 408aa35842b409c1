"""One program of a model: its steps, their memory, and the kernels one after another."""

"""One rank of many in this process: a script runs under PyTorch's fake process group, and its step is taken down."""

"""The backend ``neuron`` of `torch.distributed`: collectives of tensors on the device, and of kernels, among processes.

PyTorch's own process groups call it (`operators`). Gloo carries bytes between hosts' memories (`transport`), what is
added is added here in the order of the ranks (`reductions`), and what goes wrong is told with lines (`group`, `peers`).
"""

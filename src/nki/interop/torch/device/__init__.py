"""The device ``neuron`` in PyTorch: its module, memory, streams, and what PyTorch asks of it."""

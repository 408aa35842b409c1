"""The backend ``neuron`` of `torch.compile`: whole graphs as programs of the device."""

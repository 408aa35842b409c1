"""Single operators on tensors of the device, outside of `torch.compile`."""

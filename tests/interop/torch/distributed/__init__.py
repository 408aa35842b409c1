"""`torch.distributed` on the device: processes that torchrun starts."""

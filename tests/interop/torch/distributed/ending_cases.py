"""A rank that meets the others until one of them has ended; its process ends with the error."""

import os

import torch
import torch.distributed as dist

from nki.interop.torch import eager_on, enable_device

enable_device()
eager_on("host")
dist.init_process_group("neuron")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.ones(1000, device="neuron")
y = torch.empty_like(x)
dist.all_reduce(x)
print(f"rank {rank} is process {os.getpid()}", flush=True)
while True:
    dist.all_reduce(x)
    sent = dist.isend(x, (rank + 1) % size)
    dist.recv(y, (rank - 1) % size)
    sent.wait()

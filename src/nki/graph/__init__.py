"""The graph compiler: a model as StableHLO becomes one program for the device, with kernels linked in."""

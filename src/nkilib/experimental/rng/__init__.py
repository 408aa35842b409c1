"""Random numbers: the generator of the GpSimd engine (nki/library/api/rng.rst), and dropout by that of Vector."""

from nkilib.experimental.rng.dropout import dropout
from nkilib.experimental.rng.rng import generate_random, get_rng_state_gpsimd, set_rng_state_gpsimd

__all__ = ["dropout", "generate_random", "get_rng_state_gpsimd", "set_rng_state_gpsimd"]

"""``nki.language``: memory, math, loops and grids, written with nki.isa."""

from __future__ import annotations

from nki.core.dtypes import bfloat16, float16, float32, int32, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion, NKIObject
from nki.language.memory import ds, ndarray
from nki.language.operators import add, multiply

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
hbm = private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm

"""Sizes of the hardware as kernels ask for them: ``nl.tile_size`` and ``nl.fp32``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from nki.core.numerics import FP32_MAX, FP32_MIN
from nki.core.tensor import NKIObject
from nki.spec.sink import current_target

_F32_BYTES = 4


class TileSize(NKIObject):
    """Limits of tiles on the current target.

    Inside a kernel that is the kernel's target, elsewhere the target of the environment
    (NEURON_PLATFORM_TARGET_OVERRIDE), which may be another one than a decorator names.
    """

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM: the largest first dimension of a tile."""
        return current_target().partitions

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements that one PSUM bank holds per partition."""
        return current_target().psum.bank_bytes // _F32_BYTES

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes that one PSUM bank holds per partition."""
        return current_target().psum.bank_bytes

    @property
    def psum_fmax(self) -> int:
        """Deprecated: `psum_bank_fmax`."""
        _deprecated("psum_fmax", "psum_bank_fmax")
        return self.psum_bank_fmax

    @property
    def psum_num_banks(self) -> int:
        """PSUM banks per partition."""
        return current_target().psum.banks

    @property
    def psum_min_align(self) -> int:
        """Alignment of addresses in a PSUM partition, in bytes."""
        return current_target().psum.min_align

    @property
    def gemm_stationary_fmax(self) -> int:
        """Elements per partition of the stationary operand of a matmul."""
        return current_target().pe.max_stationary_free

    @property
    def gemm_moving_fmax(self) -> int:
        """Elements per partition of the moving operand of a matmul, as documented for all targets."""
        return current_target().limits.gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Elements per partition of the data of nisa.bn_stats."""
        return current_target().limits.bn_stats_max_free

    @property
    def sbuf_min_align(self) -> int:
        """Alignment of addresses in an SBUF partition, in bytes."""
        return current_target().sbuf.min_align

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF over all partitions."""
        return current_target().partitions * current_target().sbuf.bytes_per_partition

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Bytes of one SBUF partition that tiles may use."""
        return current_target().sbuf.usable_bytes_per_partition

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements of one SBUF partition that tiles may use."""
        return self.sbuf_fmax_bytes // _F32_BYTES

    @property
    def total_available_sbuf_size(self) -> int:
        """Deprecated: `sbuf_fmax_bytes`, which it always was, or `sbuf_size_bytes`, which its name says."""
        _deprecated("total_available_sbuf_size", "sbuf_fmax_bytes (per partition) or sbuf_size_bytes (total)")
        return self.sbuf_fmax_bytes

    def __repr__(self) -> str:
        return f"<tile sizes of {current_target().name}>"


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """Finite range of float32, for kernels that were written when dtypes had no limits.

    Attributes:
        min, max: the most negative and the largest finite value.
    """

    min: float = FP32_MIN
    max: float = FP32_MAX


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"nl.tile_size.{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)


tile_size = TileSize()
fp32 = FloatLimits()

"""Exchange between ranks: gathers, sums and products that overlap with them."""

from nkilib.experimental.collectives.collectives import (
    all_gather_hbm_kernel,
    all_reduce_hbm_kernel,
    all_to_all_hbm_kernel,
    dma_copy_rank_id_kernel,
    rank_id_kernel,
    reduce_scatter_hbm_kernel,
)
from nkilib.experimental.collectives.fg_allgather import fine_grained_allgather
from nkilib.experimental.collectives.fgcc import allgather_compute_matmul
from nkilib.experimental.collectives.sb2sb_allgather import allgather_sb2sb, allgather_sb2sb_tiled

__all__ = [
    "all_gather_hbm_kernel",
    "all_reduce_hbm_kernel",
    "all_to_all_hbm_kernel",
    "allgather_compute_matmul",
    "allgather_sb2sb",
    "allgather_sb2sb_tiled",
    "dma_copy_rank_id_kernel",
    "fine_grained_allgather",
    "rank_id_kernel",
    "reduce_scatter_hbm_kernel",
]

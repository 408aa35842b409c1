"""Options that arguments of several kernels name: enumerations, and records of settings.

Names and values are those of the documented library, so that a call may pass either.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import nki.language as nl


class QKVOutputLayout(Enum):
    """Order of the dimensions that a projection to queries, keys and values returns."""

    BSD = 0
    """(batch, sequence, heads * head size): queries, then keys, then values."""
    NBSd = 1
    """(heads, batch, sequence, head size)"""
    NBdS = 2
    """(heads, batch, head size, sequence)"""


class NormType(Enum):
    """Normalisation of each row."""

    NO_NORM = 0
    RMS_NORM = 1
    LAYER_NORM = 2
    RMS_NORM_SKIP_GAMMA = 3
    """RMS_NORM without weights, which somebody multiplied into the next product."""


class ActFnType(Enum):
    """Activation function between the products of an MLP."""

    SiLU = 0
    GELU = 1
    GELU_Tanh_Approx = 2
    Swish = 3
    """``x * sigmoid(1.702 x)``, as published kernels compute it: GELU by way of the sigmoid."""
    ReLU = 4
    SquaredReLU = 5


class RouterActFnType(Enum):
    """What turns a router's logits into affinities; its string is the name in lower case."""

    SIGMOID = 0
    SOFTMAX = 1
    NOAUX_TC = 2
    """Sigmoid, with a bias that counts for the choice of experts alone."""

    def __str__(self) -> str:
        return self.name.lower()


class ExpertAffinityScaleMode(Enum):
    """Where an expert's part of a token is scaled with the token's affinity to it."""

    NO_SCALE = 0
    POST_SCALE = 1
    """The result of the expert."""
    PRE_SCALE = 2
    """The input of the expert."""
    PRE_SCALE_DELAYED = 3
    """The input, by way of the first products, which are linear in it."""


class QuantizationType(Enum):
    """How numbers of 8 bits and fewer stand for larger ones."""

    NONE = 0
    STATIC = 1
    """FP8 with one scale for a tensor, known beforehand."""
    ROW = 2
    """FP8 with a scale for each row: a token of an activation, an output channel of a weight."""
    MX = 3
    """A scale of 8 bits for every 32 numbers (trn3)."""
    STATIC_MX = 4
    """STATIC in the storage of MX, whose scales are 1."""
    ROW_MX = 5
    """ROW in the storage of MX, whose scales are 1."""

    def is_mx(self) -> bool:
        """Whether numbers are stored as MX stores them."""
        return self in (QuantizationType.MX, QuantizationType.STATIC_MX, QuantizationType.ROW_MX)

    def is_logical_static(self) -> bool:
        """Whether one scale serves a whole tensor."""
        return self in (QuantizationType.STATIC, QuantizationType.STATIC_MX)

    def is_logical_row(self) -> bool:
        """Whether each row has a scale that is found from the row."""
        return self in (QuantizationType.ROW, QuantizationType.ROW_MX)


class DtypeMode(Enum):
    """Which of the two FP8 formats with four bits of exponent is meant where arguments carry bytes of either."""

    NON_OCP = "non_ocp"
    """float8_e4m3, at most 240, with infinities."""
    OCP = "ocp"
    """float8_e4m3fn, at most 448, without infinities."""
    AUTO = "auto"
    """OCP where the target computes with it, NON_OCP elsewhere."""


class ComputationMode(Enum):
    """Whether a kernel plans for many tokens or for few."""

    AUTO = 0
    PREFILL = 1
    DECODE = 2


class QKVWeightLayout(Enum):
    """How the weights (H, I) of a projection to queries, keys and values are stored."""

    CONTIGUOUS = 0
    """As they are."""
    MX_CONTIGUOUS = 1
    """(H / 4, I, 4): four rows that follow each other are packed."""
    MX_INTERLEAVED = 2
    """MX_CONTIGUOUS of reordered rows: rows 2i and 2i + 1 of the first half, then those of the second half."""


class GateUpDim(Enum):
    """Place of the two projections where one tensor holds both."""

    GATE = 0
    UP = 1


class MLPGateUpWeightLayout(Enum):
    """How the weights (H, I) of an MLP's gate and up projections are stored.

    The packed layouts pad H and I to multiples of 512 and have the shape (128, H / 512, I / 512, 4, 128, 4).
    """

    CONTIGUOUS = 0
    """As they are."""
    H_X4_INNERMOST = 1
    """Row h of a block of 512 lies on partition h // 4; for activations that are quantized already."""
    H_X4_MIDDLE = 2
    """Row h of a block of 512 lies on partition h % 128; for activations that the kernel quantizes."""


class OProjAttentionLayout(Enum):
    """Order of the dimensions of what an output projection for many tokens gets."""

    BNdS = 0
    """(batch, heads, head size, sequence)"""
    BSNd = 1
    """(batch, sequence, heads, head size)"""
    BNSd = 2
    """(batch, heads, sequence, head size)"""


class HiddenLayout(Enum):
    """Order of the dimensions of hidden states in SBUF, where H = H0 * H1 and H0 are the partitions."""

    H0_T_H1 = 0
    H0_H1_T = 1

    def get_t_dim(self) -> int:
        """Position of the tokens."""
        return 1 if self is HiddenLayout.H0_T_H1 else 2

    def get_h1_dim(self) -> int:
        """Position of what of H lies in one partition."""
        return 3 - self.get_t_dim()


class MoELNCShardingStrategy(Enum):
    """What two cores share of the work of a mixture of experts."""

    NO_SHARD = 0
    SHARD_I = 1
    """The intermediate dimension of every expert."""
    SHARD_T = 2
    """The tokens."""
    SHARD_E = 3
    """The experts."""


class MoEAllToAllVStrategy(Enum):
    """How rows that an all-to-all exchange brought are ordered."""

    DISABLED = 0
    PRESERVE_ROW_ORDER = 1
    PACK_OUTPUT_ROWS = 2
    """Rows of tokens come first, without gaps."""


class MoEBlockIOLayout(Enum):
    """Order of the dimensions of what goes into and out of a block with a mixture of experts."""

    B_S_H = 0
    _128_Nprgs_Hfree_T = 1
    """(128, cores, H / 128 / cores, tokens)"""


@dataclass
class QKNormConfig(nl.NKIObject):
    """Normalisation of each head of queries and keys.

    Attributes:
        q_norm, k_norm: of the heads of queries, and of keys; None for none.
        eps: added to the mean of the squares.
        q_gamma_norm_weights, k_gamma_norm_weights: weights of shape (1, head size), or None.
        q_beta_norm_weights, k_beta_norm_weights: what LAYER_NORM adds, of shape (1, head size), or None.
        gamma_fused_in_rope_caches: the caches of cosines and sines are multiplied with the weights already.
    """

    q_norm: NormType | None = NormType.RMS_NORM
    k_norm: NormType | None = NormType.RMS_NORM
    eps: float = 1e-6
    q_gamma_norm_weights: nl.NkiTensor | None = None
    k_gamma_norm_weights: nl.NkiTensor | None = None
    q_beta_norm_weights: nl.NkiTensor | None = None
    k_beta_norm_weights: nl.NkiTensor | None = None
    gamma_fused_in_rope_caches: bool = False


@dataclass(frozen=True)
class StridedInputConfig(nl.NKIObject):
    """Blocks of tokens at equal distances, which are the rows that a kernel handles.

    Attributes:
        block_len: tokens of a block.
        block_stride: tokens from the start of one block to that of the next.
        block_offset: the first token of the first block.
        num_local_tokens: tokens of all blocks together.
    """

    block_len: int
    block_stride: int
    block_offset: int
    num_local_tokens: int

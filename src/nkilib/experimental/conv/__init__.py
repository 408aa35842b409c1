"""Convolutions of sequences and volumes."""

from nkilib.experimental.conv.conv1d import conv1d
from nkilib.experimental.conv.conv3d import conv3d
from nkilib.experimental.conv.conv3d_temporal_unroll import conv3d_temporal_unroll, should_use_temporal_unroll
from nkilib.experimental.conv.conv3d_transpose import conv3d_transpose
from nkilib.experimental.conv.depthwise_conv1d import depthwise_conv1d_implicit_gemm

__all__ = [
    "conv1d",
    "conv3d",
    "conv3d_temporal_unroll",
    "conv3d_transpose",
    "depthwise_conv1d_implicit_gemm",
    "should_use_temporal_unroll",
]

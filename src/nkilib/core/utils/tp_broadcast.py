"""The column that is transposed to all partitions, under the name of its own module."""

from nkilib.core.utils.stream_shuffle_broadcast import tp_broadcast

__all__ = ["tp_broadcast"]

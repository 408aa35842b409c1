"""Compiled kernels as files: written, read with distrust, validated; docs/artifact.md."""

"""Choosing among configurations of a kernel by the timing model: `nki.autotune` (docs/tuning.md)."""

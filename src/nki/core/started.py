"""When this package was imported, which tells whether its files were changed since."""

from __future__ import annotations

import time

IMPORTED_NS = time.time_ns()
"""Nanoseconds of the system's clock; `nki.core` imports this module before it imports anything else."""

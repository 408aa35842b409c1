"""Machine code: objects, their loader, their cache on disk, and the functions that they hold."""

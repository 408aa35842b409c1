"""What `scripts/replay.py` replays: kernels, models and refused kernels, and how what they give becomes one record."""

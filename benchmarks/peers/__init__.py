"""Speed next to what one would use otherwise: `run.py`, and what calls, instructions and cold starts cost."""

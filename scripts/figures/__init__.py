"""What `scripts/house.py` counts, each kind of figure in a file of its own. Nothing here imports the package."""

"""What happens: instructions executed with NumPy on real bytes."""

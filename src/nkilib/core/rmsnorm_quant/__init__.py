"""RMS norm with quantisation, under the documented name."""

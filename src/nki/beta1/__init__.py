"""The first NKI, which was ``neuronxcc.nki``: its language, on the instructions of today."""

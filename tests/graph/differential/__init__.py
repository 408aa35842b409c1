"""Random graphs of many operators, judged by bounds that hold for every correct implementation.

`records` is what a graph is, `table` lists the operators (each with its code for PyTorch and JAX and with its bound),
`draw` makes graphs, `run` computes them on the device and by the framework, `judge` compares, `shrink` makes faults
small.
"""

"""From an expression graph to the MLIR text of one function."""

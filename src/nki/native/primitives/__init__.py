"""Functions that every kernel needs, as MLIR text: the dispatch loop, copies, transposes and matrix products."""

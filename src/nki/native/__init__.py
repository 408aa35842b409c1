"""Instructions compiled to machine code: traced bodies, emitted MLIR, objects and their loader."""

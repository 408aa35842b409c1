"""Programs as MLIR: dialects `nki` and `nisa`, building and reading, verification, text and bytecode."""

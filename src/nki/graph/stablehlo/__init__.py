"""StableHLO as text and records: read, written, parsed and verified by MLIR."""

"""Random cases of every operation of StableHLO, for the tests and for the table in docs/stablehlo.md."""

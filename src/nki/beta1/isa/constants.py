"""``neuronxcc.nki.isa.constants``: the enumerations under the path that public kernels import them from."""

from nki.beta1.isa.enumerations import dge_mode, engine, nc_version, oob_mode, reduce_cmd

__all__ = ["dge_mode", "engine", "nc_version", "oob_mode", "reduce_cmd"]

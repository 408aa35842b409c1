"""``nki compile``, ``cc``, ``opt``, ``ir`` and ``disasm``: from kernels and models to stages and files."""

"""The layout of the binary form: magic, version, tags and the fixed parts of records, all little-endian.

docs/assembly.md describes it field by field.
"""

from __future__ import annotations

from struct import Struct

MAGIC = b"NKAS"
VERSION = 1
"""Version of the layout and of the text; others are refused."""

TABLES, CONSTANTS = "tables", "constants"
"""Names of the parts that are no streams; the others are called like their queue."""

PREFIX = Struct("<4sHHQ")  # magic, version, kind, bytes of the whole part
KIND_TABLES, KIND_STREAM, KIND_CONSTANTS = 0, 1, 2

COUNT = Struct("<I")
PAIR = Struct("<II")
PROGRAM = Struct("<IIIIII")  # name, target, core, cores, location, scheduled
FRAME = Struct("<IIiiii")  # file, function, line, column, end line, end column
REGISTER = Struct("<qI")  # id, frozen
BUFFER = Struct("<qIIIIiIHHqqQ")  # id, name, region, dtype, role, scope, location, flags, rank, partition, byte, data
SIZE = Struct("<Q")
HAS_ADDRESS, IS_EXPLICIT, HAS_DATA = 1, 2, 4

COMMAND = Struct("<BBBBIIIIHH")  # tag, signals, engine, operands, bytes, position, location, opcode, waits, 0
AWAIT = Struct("<HHI")  # semaphore, 0, count
BEGIN = Struct("<BBHIIIIqqq")  # tag, flags, 0, loop, position, location, register, lower, upper, step
MARK = Struct("<BBHI")  # tag, 0, 0, loop
TAG_COMMAND, TAG_BEGIN, TAG_END, TAG_PASS = 1, 2, 3, 4
SCHEDULED, COUNTED, LOWER_REGISTER, UPPER_REGISTER = 1, 2, 4, 8

NONE, DEFAULT, FALSE, TRUE, INT, BIG_INT, FLOAT, TEXT, OPERATOR, ENUM, REGISTER_OPERAND, ACCESS, WIDE_ACCESS, GROUP = (
    range(14)
)
"""Tags of operands."""
INTEGER = Struct("<q")
BITS = Struct("<Q")
SHORT = Struct("<H")
ACCESS_HEAD = Struct("<BBBBII")  # tag, rank, indirection, 0, dtype, buffer
NARROW, NARROW_PAIR = Struct("<ii"), Struct("<ii")  # partition and byte; stride and count
WIDE, WIDE_PAIR = Struct("<qq"), Struct("<qq")

INDIRECTIONS = ("", "scalar_offset", "vector_offset", "free_indirection")
ENGINES = ("unknown", "tensor", "scalar", "gpsimd", "dma", "vector", "sync")
"""Names of the engines, at the published values of nki.isa.engine."""

MAX_DEPTH = 6
"""Depth of operands in operands, at most."""
MAX_INT_BYTES = 256
"""Bytes of an integer operand, at most; registers have 4, and only a constant that no rule looks at can have more."""

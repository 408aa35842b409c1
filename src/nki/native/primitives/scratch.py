"""How products divide the scratch memory of a thread: offsets and sizes in bytes."""

from __future__ import annotations

MOST_ROWS, MOST_COLUMNS = 128, 8192
"""Largest size of a result: the columns of the array, and bfloat16 elements of all of PSUM."""

_KIB = 1 << 10
_SLACK = 4 * _KIB
"""A vector may end behind its row."""

LEFT, LEFT_ROOM = 0, 256 * _KIB
"""The packed stationary operand."""
RIGHT, RIGHT_ROOM = LEFT + LEFT_ROOM, 256 * _KIB
"""One packed panel of the moving operand."""
RESULT, RESULT_ROOM = RIGHT + RIGHT_ROOM, 4 * MOST_ROWS * MOST_COLUMNS
"""Results for a destination that cannot take them as they are."""
ROWS, ROWS_ROOM = RESULT + RESULT_ROOM, 4 * (MOST_ROWS + 1) * MOST_COLUMNS
"""Rows of operands that are not contiguous."""
ROW = ROWS + ROWS_ROOM
"""A row of float32."""
NARROW_ROW = ROW + 4 * MOST_COLUMNS + _SLACK
"""A row of bfloat16."""
PRODUCT_BYTES = NARROW_ROW + 2 * MOST_COLUMNS + _SLACK

"""Numbers of ranks as people write them: ``0-15, 32``."""

from __future__ import annotations

from collections.abc import Sequence


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of ascending numbers without a gap."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def shown_ranks(numbers: Sequence[int], most: int = 4) -> str:
    """As text; of more than `most` ranges the first ones, and how many ranks there are."""
    found = ranges(numbers)
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found[:most])
    return text if len(found) <= most else f"{text}, ... ({len(numbers)} ranks)"

"""Where the ranks of a launch meet: `protocol` says what a meeting is, `threads` is ranks in one process.

These run at the same time (`parallel`), or `one_at_a_time`.
"""

from nki.ranks.current import communicator, use
from nki.ranks.protocol import ALONE, Communicator, Meeting

__all__ = ["ALONE", "Communicator", "Meeting", "communicator", "use"]

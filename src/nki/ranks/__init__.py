"""Where the ranks of a launch meet: `protocol` says what a meeting is, `threads` is ranks in one process."""

from nki.ranks.current import communicator, use
from nki.ranks.protocol import ALONE, Communicator, Meeting

__all__ = ["ALONE", "Communicator", "Meeting", "communicator", "use"]

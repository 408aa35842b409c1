"""Words that every layer uses; nothing here knows an instruction."""

from nki.core import started as started  # first: its clock is read before other files of this package are

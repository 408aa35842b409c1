"""The options of a command: the one place where the command line reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from nki.options import Options, from_environment


def options_of(target: str | None = None, variables: Mapping[str, str] | None = None) -> Options:
    """What the environment asks for, with what the command line says in its place.

    Commands hand options on; they change nothing of their process.

    Args:
        target: name of a target; None for that of the environment.
        variables: switches that count as if they were in the environment.

    Raises:
        UsageError: a variable has a value that makes no sense ("option.value").
    """
    found = from_environment({**os.environ, **variables} if variables else None)
    return found if target is None else replace(found, target=target)

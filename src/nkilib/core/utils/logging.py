"""Loggers that print while a kernel is traced; levels come from the code or from the environment.

``NKILIB_LOG_LEVEL_<name>`` sets the level of one logger, ``NKILIB_LOG_LEVEL`` that of all others: DEBUG, INFO, WARN,
ERROR or OFF. Both win over the level in the code.
"""

from __future__ import annotations

import os
import sys
from enum import Enum

import nki.language as nl

_VARIABLE = "NKILIB_LOG_LEVEL"


class LogLevel(Enum):
    """What a logger prints: messages of its level and above."""

    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3
    OFF = 999

    @staticmethod
    def from_string(level: str) -> LogLevel:
        """The level of that name; KeyError for another name."""
        return LogLevel[level]


class Logger(nl.NKIObject):
    """Prints messages with a level and a name in front."""

    name: str
    level: LogLevel

    def __init__(self, name: str, level: LogLevel = LogLevel.WARN) -> None:
        self.name, self.level = name, level

    def is_enabled_for(self, level: LogLevel) -> bool:
        """Whether messages of a level are printed."""
        return bool(level.value >= self.level.value)

    def debug(self, msg: str) -> None:
        """A message for whoever writes the kernel."""
        self._print(LogLevel.DEBUG, msg)

    def info(self, msg: str) -> None:
        """A message that is no cause for concern."""
        self._print(LogLevel.INFO, msg)

    def warn(self, msg: str) -> None:
        """A message about what may be wrong."""
        self._print(LogLevel.WARN, msg)

    def error(self, msg: str) -> None:
        """A message about what is wrong."""
        self._print(LogLevel.ERROR, msg)

    def _print(self, level: LogLevel, msg: str) -> None:
        if self.is_enabled_for(level):
            sys.stdout.write(f"[{level.name}] " + (f"[{self.name}] " if self.name else "") + f"{msg}\n")


def get_logger(name: str, level: LogLevel = LogLevel.WARN) -> Logger:
    """A logger with the level that the environment has for it, else the given one."""
    wanted = os.environ.get(f"{_VARIABLE}_{name}", os.environ.get(_VARIABLE, ""))
    return Logger(name, LogLevel.__members__.get(wanted.upper(), level))

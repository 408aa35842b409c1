"""Whether compiled kernels are kept on disk, where, and how many bytes of them.

These are no options of a call: they do not change what is computed, and options are part of the keys.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import platformdirs

from nki.core.errors import UsageError
from nki.store.cache import Cache

DEFAULT_LIMIT_BYTES = 1 << 30
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

# variable, meaning; the documentation prints this table
ENVIRONMENT: tuple[tuple[str, str], ...] = (
    ("NKI_CACHE", "0: compiled kernels are not kept on disk"),
    ("NKI_CACHE_DIR", "directory of the compiled kernels, instead of that of the platform"),
    ("NKI_CACHE_LIMIT", "what they may take, such as 500MB or 2GiB; 1GiB unless given"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says about the cache.

    Attributes:
        enabled: NKI_CACHE is not 0.
        directory: NKI_CACHE_DIR, or the platform's directory for caches.
        limit_bytes: NKI_CACHE_LIMIT.
    """

    enabled: bool
    directory: Path
    limit_bytes: int

    def cache(self) -> Cache | None:
        """The cache, the same object for the same settings; None if it is switched off."""
        return _cache(self.directory, self.limit_bytes) if self.enabled else None


def settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the variables of `ENVIRONMENT`; a value that makes no sense is a UsageError."""
    env = os.environ if environment is None else environment
    switch = env.get("NKI_CACHE", "").strip().lower()
    if switch not in ("", "0", "1", "true", "false"):
        raise _wrong("NKI_CACHE", switch, "NKI_CACHE is 0 or 1", "set NKI_CACHE=0 or unset it")
    named = env.get("NKI_CACHE_DIR", "").strip()
    return Settings(switch not in ("0", "false"), _directory(named), _limit(env.get("NKI_CACHE_LIMIT", "").strip()))


@lru_cache(maxsize=16)
def _cache(directory: Path, limit_bytes: int) -> Cache:
    """One object each, so that a directory that cannot be used is said once."""
    return Cache(directory, limit_bytes)


@lru_cache(maxsize=16)  # every compilation asks, and few directories are named
def _directory(named: str) -> Path:
    if not named:
        return Path(platformdirs.user_cache_dir("nki", appauthor=False))
    return Path(named).expanduser().absolute()


@lru_cache(maxsize=16)  # every compilation asks, and few limits are named
def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT_BYTES
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _wrong("NKI_CACHE_LIMIT", text, "it is a number of bytes, with a unit or without", "set it to 1GiB")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWERS[match[2].lower()])


def _wrong(name: str, value: str, rule: str, fix: str) -> UsageError:
    return UsageError("option.value", f"{name}={value!r}", rule=rule, fix=fix)

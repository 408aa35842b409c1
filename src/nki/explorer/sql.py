"""SQL over the tables of a profile: SQLite in memory, reading only, with limits on time, rows, sizes and memory."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nki.core.locks import Gate, lock, renewed
from nki.profile.schema import TABLES
from nki.profile.table import Table

SECONDS = 5.0
ROWS = 5000
CHARACTERS = 4_000_000
"""Of all values of an answer."""
_CELL = 200_000  # bytes of one value
_STATEMENT = 20_000  # characters of a query
_HEAP = 2**30
_TYPES = {"int": "INTEGER", "float": "REAL", "text": "TEXT", "bool": "INTEGER"}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_ENDED = "the server ends"
_STEPS = 10_000
"""Of SQLite's machine, between two looks at the limits."""
_REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}


_LIBRARY = Gate()
"""SQLite has locks for the whole process, which would stay locked in one that is forked at the wrong moment."""


class QueryError(Exception):
    """What is wrong with a query, for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of a query.

    Attributes:
        columns: their names.
        rows: values: int, float, str or None.
        truncated: whether there were more rows than the limit.
        seconds: that it took.
    """

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool
    seconds: float


class Database:
    """The tables of one profile; it is filled by the first query, and answers one query at a time."""

    def __init__(self, tables: Mapping[str, Table], seconds: float = SECONDS) -> None:
        self._tables = tables
        self._seconds = seconds
        self._lock = lock()
        self._connection: sqlite3.Connection | None = None
        self._left: list[sqlite3.Connection | None] = []
        self._until = 0.0
        self._ended = False
        renewed(self)

    def begin_anew(self) -> None:
        """SQLite's connections do not work in a forked process, where they cannot even be closed."""
        self._left.append(self._connection)
        self._connection = None

    def end(self) -> None:
        """End the query that runs, those that wait, and all further ones, with an error; for a server that ends."""
        self._ended = True

    def query(self, statement: str) -> Answer:
        """The rows of one statement.

        Raises:
            QueryError: it is no valid query, does more than reading, or goes beyond a limit.
        """
        if len(statement) > _STATEMENT:
            raise QueryError(f"the query has {len(statement):,} characters; the limit is {_STATEMENT:,}")
        with self._lock, _LIBRARY:
            if self._ended:
                raise QueryError(_ENDED)
            if self._connection is None:
                self._connection = self._filled()
            begin = time.monotonic()
            self._until = begin + self._seconds
            try:
                cursor = self._connection.execute(statement)
                try:
                    columns = [entry[0] for entry in cursor.description or ()]
                    rows, truncated = _rows(cursor)
                finally:
                    cursor.close()
            except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError, MemoryError) as problem:
                raise QueryError(self._reason(problem)) from None
        if not columns:
            raise QueryError("not authorized: only SELECT is possible")
        return Answer(columns, rows, truncated, time.monotonic() - begin)

    def _reason(self, problem: BaseException) -> str:
        if self._ended:
            return _ENDED
        if time.monotonic() > self._until:
            return f"the query took longer than {self._seconds:g} s and was stopped"
        if isinstance(problem, MemoryError):
            return f"the query needs more than {_HEAP // 2**20} MiB of memory"
        return f"SQL: {problem}"

    def _stops(self) -> int:
        _LIBRARY.pause()
        return int(self._ended or time.monotonic() > self._until)

    def _filled(self) -> sqlite3.Connection:
        made = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        made.set_progress_handler(_LIBRARY.pause, _STEPS)
        made.execute("PRAGMA temp_store=MEMORY")
        made.execute(f"PRAGMA hard_heap_limit={_HEAP}")
        made.execute("BEGIN")
        for name, columns in TABLES.items():
            table = self._tables[name]
            declared = ", ".join(f'"{column.name}" {_TYPES[column.kind]}' for column in columns)
            made.execute(f'CREATE TABLE "{name}" ({declared})')
            values = [v if isinstance(v, list) else v.tolist() for v in (table[c.name] for c in columns)]
            marks = ", ".join("?" * len(columns))
            made.executemany(f'INSERT INTO "{name}" VALUES ({marks})', zip(*values, strict=True))
        made.execute("CREATE INDEX by_id ON instructions (id)")
        made.execute("CREATE INDEX by_producer ON edges (producer)")
        made.execute("CREATE INDEX by_consumer ON edges (consumer)")
        made.execute("COMMIT")
        made.execute("PRAGMA query_only=ON")
        made.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL)
        made.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        made.set_authorizer(_authorize)
        made.set_progress_handler(self._stops, _STEPS)
        return made


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and second in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _rows(cursor: sqlite3.Cursor) -> tuple[list[list[Any]], bool]:
    rows: list[list[Any]] = []
    size = 0
    for row in cursor:
        if len(rows) == ROWS or size > CHARACTERS:
            return rows, True
        shown = [_plain(value) for value in row]
        size += sum(len(value) if isinstance(value, str) else 8 for value in shown)
        rows.append(shown)
    return rows, False


def _plain(value: Any) -> Any:
    """JSON has neither bytes nor infinities."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value

"""SQL over the tables of a profile: SQLite, reading only, with limits on time, rows, sizes and memory."""

from __future__ import annotations

import contextlib
import queue
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nki.core.locks import Gate, lock, renewed
from nki.profiling.schema import TABLES
from nki.profiling.table import Table

SECONDS = 5.0
SIDE_BY_SIDE = 4
"""Queries that are answered at once."""
_PATIENCE = 0.1  # seconds, after which a query that waits looks whether the server ends
ROWS = 5000
CHARACTERS = 4_000_000
"""Characters of all values of an answer, at most."""
_CELL = 200_000  # bytes of one value
_STATEMENT = 20_000  # characters of a query
_HEAP = 2**30
_TYPES = {"int": "INTEGER", "float": "REAL", "text": "TEXT", "bool": "INTEGER"}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_ENDED = "the server ends"
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the limits."""
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


class _Connection:
    """A connection to the tables, for one query at a time."""

    def __init__(self, file: str) -> None:
        self.connection = sqlite3.connect(
            f"file:{quote(file)}?mode=ro&immutable=1", uri=True, check_same_thread=False, isolation_level=None
        )
        self._until = 0.0
        self._ended: Callable[[], bool] = bool
        self.connection.execute("PRAGMA temp_store=MEMORY")
        self.connection.execute(f"PRAGMA hard_heap_limit={_HEAP}")
        self.connection.execute("PRAGMA query_only=ON")
        self.connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchall()  # opens the file
        self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL)
        self.connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.connection.set_authorizer(_authorize)
        self.connection.set_progress_handler(self._stops, _STEPS)

    def rows(self, statement: str, until: float, ended: Callable[[], bool]) -> tuple[list[str], list[list[Any]], bool]:
        """Columns, rows, and whether there were more of them."""
        self._until, self._ended = until, ended
        cursor = self.connection.execute(statement)
        try:
            columns = [entry[0] for entry in cursor.description or ()]
            return columns, *_rows(cursor)
        finally:
            cursor.close()

    def _stops(self) -> int:
        _LIBRARY.pause()
        return int(self._ended() or time.monotonic() > self._until)


class Database:
    """The tables of one profile, filled by the first query; some queries are answered side by side, others wait.

    Attributes:
        running: how many queries are answered now.
    """

    def __init__(self, tables: Mapping[str, Table], seconds: float = SECONDS) -> None:
        self._tables = tables
        self._seconds = seconds
        self._lock = lock()
        self._readers: list[_Connection] = []
        self._left: list[list[_Connection]] = []
        self._free: queue.LifoQueue[_Connection] = queue.LifoQueue()
        self._ended = False
        self.running = 0
        renewed(self)

    def begin_anew(self) -> None:
        """SQLite's connections do not work in a forked process, where they cannot even be closed."""
        self._left.append(self._readers)
        self._readers, self._free, self.running = [], queue.LifoQueue(), 0

    def end(self) -> None:
        """End the queries that run, those that wait, and all further ones, with an error; for a server that ends."""
        self._ended = True

    def query(self, statement: str) -> Answer:
        """The rows of one statement.

        Raises:
            QueryError: it is no valid query, does more than reading, or goes beyond a limit.
        """
        if len(statement) > _STATEMENT:
            raise QueryError(f"the query has {len(statement):,} characters; the limit is {_STATEMENT:,}")
        reader = self._reader()
        try:
            with self._lock:
                self.running += 1
            return self._answer(reader, statement)
        finally:
            with self._lock:
                self.running -= 1
            self._free.put(reader)

    def _answer(self, reader: _Connection, statement: str) -> Answer:
        begin = time.monotonic()
        with _LIBRARY:
            if self._ended:
                raise QueryError(_ENDED)
            try:
                columns, rows, truncated = reader.rows(statement, begin + self._seconds, lambda: self._ended)
            except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError, MemoryError) as problem:
                raise QueryError(self._reason(problem, begin)) from None
        if not columns:
            raise QueryError("not authorized: only SELECT is possible")
        return Answer(columns, rows, truncated, time.monotonic() - begin)

    def _reader(self) -> _Connection:
        """One that is free, after as long as a query may take at the most."""
        with self._lock, _LIBRARY:
            if not self._readers and not self._ended:
                try:
                    self._readers = _filled(self._tables)
                except (sqlite3.Error, OSError, MemoryError) as problem:
                    raise QueryError(f"the tables cannot be made ready for queries: {problem}") from None
                for reader in self._readers:
                    self._free.put(reader)
        until = time.monotonic() + self._seconds
        while not self._ended and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                return self._free.get(timeout=_PATIENCE)
        raise QueryError(_ENDED if self._ended else f"{SIDE_BY_SIDE} other queries run; ask again when one has ended")

    def _reason(self, problem: BaseException, begin: float) -> str:
        if self._ended:
            return _ENDED
        if time.monotonic() > begin + self._seconds:
            return f"the query took longer than {self._seconds:g} s and was stopped"
        if isinstance(problem, MemoryError):
            return f"the query needs more than {_HEAP // 2**20} MiB of memory"
        return f"SQL: {problem}"


def _filled(tables: Mapping[str, Table]) -> list[_Connection]:
    """Connections to a file with the tables, which has no name any more and is gone with them."""
    with tempfile.TemporaryDirectory(prefix="nki-explorer-") as folder:
        file = str(Path(folder) / "profile.db")
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as made:
            _fill(made, tables)
        return [_Connection(file) for _ in range(SIDE_BY_SIDE)]


def _fill(made: sqlite3.Connection, tables: Mapping[str, Table]) -> None:
    made.set_progress_handler(_LIBRARY.pause, _STEPS)
    made.execute("PRAGMA journal_mode=OFF")
    made.execute("PRAGMA synchronous=OFF")
    made.execute(f"PRAGMA hard_heap_limit={_HEAP}")
    made.execute("BEGIN")
    for name, columns in TABLES.items():
        table = tables[name]
        declared = ", ".join(f'"{column.name}" {_TYPES[column.kind]}' for column in columns)
        made.execute(f'CREATE TABLE "{name}" ({declared})')
        values = [v if isinstance(v, list) else v.tolist() for v in (table[c.name] for c in columns)]
        marks = ", ".join("?" * len(columns))
        made.executemany(f'INSERT INTO "{name}" VALUES ({marks})', zip(*values, strict=True))
    made.execute("CREATE INDEX by_id ON instructions (id)")
    made.execute("CREATE INDEX by_producer ON edges (producer)")
    made.execute("CREATE INDEX by_consumer ON edges (consumer)")
    made.execute("COMMIT")


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

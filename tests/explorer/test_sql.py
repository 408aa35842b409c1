"""Queries read the tables, and nothing else; they end."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nki.explorer import sql
from nki.explorer.shown import from_folders
from nki.explorer.sql import Database, QueryError
from tests.forked import statuses

_COUNTING = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t)"
_ENDLESS = f"{_COUNTING} SELECT COUNT(*) FROM t"
_ALLOCATES = f"{_COUNTING} SELECT SUM(length(printf('%5000d', n) || 'x')) FROM t"


@pytest.fixture(scope="module")
def database(folder: Path) -> Database:
    """It has more time than any query here needs, also where other programs have the processors."""
    (shown,) = from_folders([folder])
    return Database(shown.profile.tables, seconds=60.0)


def test_sums_are_those_of_the_table(database: Database, folder: Path) -> None:
    (shown,) = from_folders([folder])
    table = shown.profile["instructions"]
    answer = database.query("SELECT opcode, COUNT(*), SUM(wait_ns) FROM instructions GROUP BY opcode ORDER BY opcode")
    wanted = []
    for opcode in sorted(set(table["opcode"])):
        rows = [row for row in table.rows() if row["opcode"] == opcode]
        wanted.append([opcode, len(rows), pytest.approx(sum(row["wait_ns"] for row in rows))])
    assert answer.rows == wanted
    assert answer.columns[0] == "opcode"


def test_joins(database: Database) -> None:
    answer = database.query(
        "SELECT s.line, SUM(i.flops) FROM instructions i JOIN sources s ON s.id = i.source GROUP BY 1"
    )
    assert max(answer.rows, key=lambda row: row[1])[0] == 24


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM instructions",
        "UPDATE instructions SET id = 0",
        "DROP TABLE edges",
        "CREATE TABLE x (a)",
        "CREATE TEMP TABLE x (a)",
        "ATTACH '/etc/passwd' AS other",
        "ATTACH ':memory:' AS other",
        "VACUUM INTO '/tmp/explorer-vacuum.db'",
        "PRAGMA query_only=OFF",
        "PRAGMA table_info(instructions)",
        "SELECT load_extension('x')",
        "BEGIN",
        "",
        "-- nothing",
        "SELECT 1; SELECT 2",
        "SELECT",
        "SELECT * FROM nothing",
        "SELECT '\x00",
    ],
)
def test_everything_but_reading_is_refused(database: Database, statement: str) -> None:
    with pytest.raises(QueryError) as caught:
        database.query(statement)
    assert str(caught.value)
    assert database.query("SELECT COUNT(*) FROM instructions").rows == [[400]]
    assert not os.path.exists("/tmp/explorer-vacuum.db")


def test_long_queries_are_stopped(folder: Path) -> None:
    (shown,) = from_folders([folder])
    database = Database(shown.profile.tables, seconds=1.0)
    began = time.thread_time()  # that this thread works: it is no fault of the query where others have the processors
    with pytest.raises(QueryError, match="longer than 1 s"):
        database.query(_ENDLESS)
    assert time.thread_time() - began < 5
    with pytest.raises(QueryError, match="longer than 1 s"):
        database.query("SELECT COUNT(*) FROM edges a, edges b, edges c, edges d")
    assert database.query("SELECT 1").rows == [[1]]


def test_a_quick_query_does_not_wait_for_slow_ones(folder: Path) -> None:
    (shown,) = from_folders([folder])
    database = Database(shown.profile.tables, seconds=600.0)
    with ThreadPoolExecutor(sql.SIDE_BY_SIDE) as pool:
        slow = [pool.submit(database.query, _ENDLESS) for _ in range(sql.SIDE_BY_SIDE - 1)]
        while database.running < len(slow):
            time.sleep(0.01)
        assert database.query("SELECT 1").rows == [[1]]
        slow.append(pool.submit(database.query, _ENDLESS))
        while database.running < len(slow):
            time.sleep(0.01)
        database._seconds = 0.2
        with pytest.raises(QueryError, match="4 other queries run"):
            database.query("SELECT 1")
        database.end()
        for each in slow:
            with pytest.raises(QueryError, match="the server ends"):
                each.result(60)


def test_queries_end_with_the_server(folder: Path) -> None:
    (shown,) = from_folders([folder])
    database = Database(shown.profile.tables, seconds=600.0)
    assert database.query("SELECT 1").rows == [[1]]
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(database.query, _ENDLESS) for _ in range(2)]
        while not database.running:
            time.sleep(0.01)
        database.end()
        for each in asked:
            with pytest.raises(QueryError, match="the server ends"):
                each.result(60)
    with pytest.raises(QueryError, match="the server ends"):
        database.query("SELECT 1")


def test_large_answers_are_cut(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = database.query("SELECT a.id FROM instructions a, instructions b")
    assert len(answer.rows) == sql.ROWS
    assert answer.truncated
    monkeypatch.setattr(sql, "CHARACTERS", 100)
    assert len(database.query("SELECT opcode FROM instructions").rows) < 20


def test_large_values_are_refused(database: Database) -> None:
    with pytest.raises(QueryError, match="too big"):
        database.query("SELECT hex(zeroblob(100000000))")
    with pytest.raises(QueryError, match="characters"):
        database.query("SELECT " + "1," * 20_000 + "1")


def test_values_that_json_has_not(database: Database) -> None:
    assert database.query("SELECT 1e999, x'00ff', NULL").rows == [["inf", "00ff", None]]


FORKED = """
from contextlib import contextmanager
from pathlib import Path
from nki.explorer.shown import from_folders
from nki.explorer.sql import Database, QueryError

(shown,) = from_folders([Path("FOLDER")])
database = Database(shown.profile.tables, seconds=600.0)
database.query("SELECT 1")
ENDED = []

def endless():
    try:
        database.query("ENDLESS")
    except QueryError as error:
        ENDED.append(str(error))

@contextmanager
def hold():
    thread = threading.Thread(target=endless)
    thread.start()
    while not database.running:
        pass
    yield
    database.end()
    thread.join()

def child():
    assert database.query("SELECT COUNT(*) FROM instructions").rows[0][0] > 100

while_held(hold, child, TIMES)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.parametrize(("endless", "times"), [(_ENDLESS, 1), (_ALLOCATES, 3)])
def test_queries_are_answered_in_a_process_that_is_forked_during_one(
    folder: Path, tmp_path: Path, endless: str, times: int
) -> None:
    """The second one allocates nearly all the time, and SQLite holds a lock of the whole process meanwhile."""
    code = FORKED.replace("FOLDER", str(folder)).replace("ENDLESS", endless).replace("TIMES", str(times))
    assert statuses(code, tmp_path) == ["0"] * times

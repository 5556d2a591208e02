"""The floor on SQLite: ADE's design and nothing else, to see how much of its speed the rest of ADE takes.

Whole transitions in batched transactions with `synchronous=FULL`, each with the record, the fence and one event row
per commit; a narrow table for what a claim touches; a datagram wakes the worker; one asyncio task per task.
"""

import asyncio
import contextlib
import json
import random
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw
import uvloop

from benchmarks.contract import BlockingClient, Body, Contestant, Place

CLAIM = 100
LEASE_SECONDS = 30.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS task (
    seq INTEGER PRIMARY KEY, status TEXT NOT NULL, priority INTEGER NOT NULL, run_id TEXT, lease REAL
);
CREATE INDEX IF NOT EXISTS ready ON task (priority, seq) WHERE status = 'pending';
CREATE TABLE IF NOT EXISTS content (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, args TEXT NOT NULL, result TEXT);
CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, tasks TEXT NOT NULL);
"""
ADD = """INSERT INTO task (seq, status, priority)
    SELECT value ->> 0, 'pending', value ->> 1 FROM json_each(?)"""
ADD_CONTENT = "INSERT INTO content (seq, id, args) SELECT value ->> 0, value ->> 2, value ->> 3 FROM json_each(?)"
BEGIN = """UPDATE task SET status = 'running', run_id = ?, lease = ?
    WHERE seq IN (SELECT seq FROM task WHERE status = 'pending' ORDER BY priority, seq LIMIT ?)
    RETURNING seq, (SELECT args FROM content WHERE content.seq = task.seq)"""
FINISH = """UPDATE task SET status = 'completed', lease = NULL
    WHERE seq IN (SELECT value ->> 0 FROM json_each(?)) AND status = 'running' AND run_id = ? RETURNING seq"""
FINISH_CONTENT = """UPDATE content SET result = done.value ->> 1 FROM json_each(?) AS done
    WHERE content.seq = done.value ->> 0"""
EVENT = "INSERT INTO event (kind, tasks) VALUES (?, ?)"
NEXT = "SELECT coalesce(max(seq), 0) + 1 FROM task"


class Floor:
    def describe(self, place: Place) -> Mapping[str, str]:
        return {
            "version": "this repository",
            "in force": f"SQLite {apsw.sqlite_lib_version()}, journal_mode=wal, synchronous=full",
            "set for this run": f"apsw, transactions of up to {CLAIM} tasks in the worker, uvloop",
            "its docs recommend": "nothing: it is no product, only a limit to compare ADE with",
            "enqueue many": "one transaction per batch",
            "result stored": "yes, with events",
            "killed in mid-task": "the lease stays in the row",
        }

    @contextmanager
    def connect(self, place: Place) -> Iterator[BlockingClient]:
        connection = _open(place)
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

        def put_mixed(texts: Sequence[str], priorities: int) -> None:
            for start in range(0, len(texts), 1000):
                _add(connection, texts[start : start + 1000], priorities)
            with contextlib.suppress(OSError):  # nobody listens while the queue is filled
                bell.sendto(b"!", str(_bell(place)))

        yield BlockingClient(
            put=lambda text: put_mixed([text], 1),
            put_many=lambda texts: put_mixed(texts, 1),
            put_mixed=put_mixed,
            not_for_threads="one connection, which has one thread",
        )
        bell.close()
        connection.close()

    @contextmanager
    def watch(self, place: Place) -> Iterator[Callable[[int], int]]:
        connection = _open(place)
        count = "SELECT count(*) FROM task WHERE status != 'completed'"
        yield lambda tasks: int(str(connection.execute(count).get))
        connection.close()

    def work(self, place: Place, body: Body) -> None:
        uvloop.run(_work(place, body))


async def _work(place: Place, body: Body) -> None:
    connection, run_id, rung = _open(place), uuid.uuid4().hex, asyncio.Event()
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    bell.bind(str(_bell(place)))
    bell.setblocking(False)

    def hear() -> None:
        bell.recv(16)
        rung.set()

    asyncio.get_running_loop().add_reader(bell, hear)

    async def run(seq: int, args: str) -> tuple[int, str]:
        return seq, json.dumps(body(json.loads(args)))

    while True:
        rung.clear()
        batch = _begin(connection, run_id)
        if not batch:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), 1)
            continue
        done = await asyncio.gather(*(asyncio.create_task(run(seq, args)) for seq, args in batch))
        _finish(connection, run_id, done)


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    """Take the write lock by trying again at random: SQLite's own waiting starves the loser."""
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            break
        except apsw.BusyError:
            time.sleep(random.uniform(0.0003, 0.0009))
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _add(connection: apsw.Connection, texts: Sequence[str], priorities: int) -> None:
    with _transaction(connection):
        first = int(str(connection.execute(NEXT).get))
        rows = [[first + at, at % priorities, uuid.uuid4().hex, json.dumps(text)] for at, text in enumerate(texts)]
        told = json.dumps(rows)
        connection.execute(ADD, (told,))
        connection.execute(ADD_CONTENT, (told,))
        connection.execute(EVENT, ("created", json.dumps([row[0] for row in rows])))


def _begin(connection: apsw.Connection, run_id: str) -> list[tuple[int, str]]:
    if connection.execute("SELECT 1 FROM task WHERE status = 'pending' LIMIT 1").get is None:
        return []
    with _transaction(connection):
        rows = connection.execute(BEGIN, (run_id, time.time() + LEASE_SECONDS, CLAIM)).fetchall()
        connection.execute(EVENT, ("started", json.dumps([row[0] for row in rows])))
    return [(int(str(seq)), str(args)) for seq, args in rows]


def _finish(connection: apsw.Connection, run_id: str, done: Sequence[tuple[int, str]]) -> None:
    told = json.dumps(done)
    with _transaction(connection):
        mine = {row[0] for row in connection.execute(FINISH, (told, run_id))}
        kept = [each for each in done if each[0] in mine]
        connection.execute(FINISH_CONTENT, (json.dumps(kept),))
        connection.execute(EVENT, ("completed", json.dumps([seq for seq, _ in kept])))


def _open(place: Place) -> apsw.Connection:
    connection = apsw.Connection(str(place.folder / "floor.db"))
    connection.set_busy_timeout(5000)  # while the tables are made
    connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; " + SCHEMA).fetchall()
    connection.set_busy_timeout(0)
    return connection


def _bell(place: Place) -> Path:
    return place.folder / "bell"


FLOOR: Contestant = Floor()

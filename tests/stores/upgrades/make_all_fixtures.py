"""Makes the fixtures of every schema version: the code of each fills a store on SQLite and one on Redis.

    python tests/stores/upgrades/make_all_fixtures.py [VERSION ...]

It checks out the last commit of each version in a worktree. Versions that are never made again need no new fixture;
add a line to COMMITS when a migration is added.
"""

import base64
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import redis

HERE = Path(__file__).parent
COMMITS = {  # the last commit with each version; 5 and 6 came together
    1: "29158209",
    2: "326b63a6",
    3: "9f9cdc2e",
    4: "252256ac",
    6: "2ba1e0c0",
    7: "b5a2445d",
}


def fill(checkout: Path, url: str) -> None:
    """Run the old code until it has filled the store, then end what it left."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "ADE_REDIS__ALLOW_VOLATILE": "true"}
    environment |= {"LOGNAME": "ada", "USER": "ada"}
    program = (HERE / "make_fixture.py").read_text(encoding="utf-8")
    start = f"exec(compile({program!r}, 'make_fixture.py', 'exec'))"  # tracebacks name no folder of this machine
    command = [sys.executable, "-c", start, url]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True)
        assert process.wait(120) == 0
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def dump_sqlite(path: Path) -> str:
    """Return the database as SQL."""
    connection = apsw.Connection(str(path))
    lines = ["PRAGMA foreign_keys=OFF;", "BEGIN;"]
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        " ORDER BY type <> 'table', rowid"
    ).fetchall()
    later = []
    for kind, name, sql in rows:
        if kind != "table":
            later.append(f"{sql};")
            continue
        lines.append(f"{sql};")
        for row in connection.execute(f'SELECT * FROM "{name}"').fetchall():
            values = ",".join(apsw.format_sql_value(value) for value in row)
            lines.append(f'INSERT INTO "{name}" VALUES({values});')
    later += [f"PRAGMA {name}={connection.pragma(name)};" for name in ("application_id", "user_version")]
    return "\n".join([*lines, *later, "COMMIT;", ""])


def dump_redis(client: Any) -> Iterator[str]:
    """Yield one JSON line for each key: its name and its contents as DUMP returns them. Expiry is left out."""
    for key in sorted(client.keys("*")):
        dumped = client.dump(key)
        assert dumped is not None
        yield json.dumps([base64.b64encode(key).decode(), base64.b64encode(dumped).decode()])


def make(version: int, commit: str) -> None:
    """Make both fixtures of a version."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "old"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(checkout), commit], check=True)
        try:
            fill(checkout, f"sqlite:///{folder}/ade.db")
            (HERE / f"sqlite-{version}.sql.gz").write_bytes(_packed(dump_sqlite(Path(folder) / "ade.db")))
            socket = Path(folder) / "redis.sock"
            options = ["--port", "6399", "--unixsocket", str(socket), "--save", "", "--dir", folder]
            server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
            try:
                fill(checkout, "redis://127.0.0.1:6399")
                client = redis.Redis(unix_socket_path=str(socket))
                (HERE / f"redis-{version}.jsonl.gz").write_bytes(_packed("\n".join(dump_redis(client))))
            finally:
                server.kill()
                server.wait()
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(checkout)], check=True)


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


if __name__ == "__main__":
    for each in [int(text) for text in sys.argv[1:]] or COMMITS:
        make(each, COMMITS[each])

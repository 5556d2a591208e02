"""A worker that knows nothing of ADE but its protocol: plain Redis commands and the scripts in a folder.

It works off what it can and ends when nothing is left: `python foreign_worker.py URL FOLDER`.
"""

import json
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

LEASE_MS = 1500
PREFIX, TASKS, GROUP, RESULTS, DLQ = "ade:", "ade:queue:tasks", "ade-workers", "ade:queue:results", "ade:queue:dlq"


def double(args: dict[str, Any], attempt: int) -> object:
    return {"doubled": 2 * args["number"]}


def fail_at_first(args: dict[str, Any], attempt: int) -> object:
    if attempt == 1:
        raise ValueError("no luck")
    return "done after all"


def hang(args: dict[str, Any], attempt: int) -> object:
    threading.Event().wait()
    return None


HANDLERS: dict[str, Callable[[dict[str, Any], int], object]] = {"double": double, "flaky": fail_at_first, "hang": hang}


class Worker:
    def __init__(self, url: str, folder: Path) -> None:
        self.server = redis.Redis.from_url(url)
        self.scripts = {name: (folder / f"{name}.lua").read_text() for name in ("claim", "renew", "hand_in")}
        self.shas = {name: self.server.script_load(text) for name, text in self.scripts.items()}
        self.id = f"foreign-{uuid.uuid4().hex[:8]}"

    def call(self, name: str, **request: object) -> Any:
        keys = (2, f"{PREFIX}meta", f"{PREFIX}void")
        arguments = (json.dumps(request), 0, 1, TASKS, GROUP, RESULTS, DLQ)
        try:
            return self.server.evalsha(self.shas[name], *keys, *arguments)
        except redis.exceptions.NoScriptError:  # the server was restarted
            return self.server.eval(self.scripts[name], *keys, *arguments)

    def work(self) -> None:
        while True:
            run_id = uuid.uuid4().hex
            claim = {"run_ids": [run_id], "names": sorted(HANDLERS), "queues": [], "lease_ms": LEASE_MS}
            more, *records = self.call("claim", id=run_id, worker=self.id, **claim)
            for record in map(json.loads, records):
                self.run(record)
            if not records and not more:
                return

    def run(self, record: dict[str, Any]) -> None:
        print(f"running {record['id']}", flush=True)
        done = threading.Event()
        threading.Thread(target=self.beat, args=(record, done), daemon=True).start()
        outcome: dict[str, object]
        try:
            args = record["detail"].get("args", {})
            outcome = {"result": HANDLERS[record["name"]](args, record["attempt"])}
        except Exception as error:
            outcome = {"error": {"type": type(error).__name__, "message": str(error)}, "retry_after_ms": 0}
        done.set()
        answer = self.call("hand_in", id=record["id"], run_id=record["run_id"], outcome=json.dumps(outcome))
        print(f"{answer.decode()} {record['id']}", flush=True)

    def beat(self, record: dict[str, Any], done: threading.Event) -> None:
        while not done.wait(LEASE_MS / 3000):
            self.call("renew", worker=self.id, runs=[[record["run_id"], record["id"]]], lease_ms=LEASE_MS)


if __name__ == "__main__":
    Worker(sys.argv[1], Path(sys.argv[2])).work()

"""What a worker says: events with fields, and never a payload."""

import json
import logging
import subprocess
import sys

from ade.logs import JsonFormatter, Log, TextFormatter

PROGRAM = """
import asyncio, sys
from ade.composition.stores import open_stores
from ade.logs import configure
from tests.worker.harness import Workshop

async def fail(secret: str) -> None:
    raise ValueError("no luck")

async def succeed(secret: str) -> str:
    return secret

async def main() -> None:
    stores = await open_stores("memory://")
    workshop = Workshop(stores)
    workshop.handle(fail)
    workshop.handle(succeed)
    await workshop.perform("fail", {"secret": "s3cret"}, max_attempts=1)
    await workshop.perform("succeed", {"secret": "s3cret"})
    await stores.close()

configure("json", sys.argv[1])
asyncio.run(main())
"""


def said(level: str) -> list[dict[str, object]]:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, level], capture_output=True, text=True, timeout=180, check=True
    )
    assert "s3cret" not in answer.stderr + answer.stdout
    return [json.loads(line) for line in answer.stderr.splitlines()]


def test_failures_are_told_with_task_attempt_and_worker() -> None:
    lines = said("info")
    [failed] = [line for line in lines if line["event"] == "task.fail"]
    assert failed["error"] == "ValueError: no luck"
    assert {"task_id", "attempt", "worker", "level", "timestamp"} <= failed.keys()
    assert "task.succeed" not in [line["event"] for line in lines]


def test_successes_are_told_to_those_who_want_every_detail() -> None:
    assert "task.succeed" in [line["event"] for line in said("debug")]


def test_whoever_wants_only_warnings_hears_nothing_else() -> None:
    assert said("warning") == []


def test_a_program_with_logging_of_its_own_sees_the_fields_too() -> None:
    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    handler = Keep()
    logger = logging.getLogger("ade.test_logging")
    logger.addHandler(handler)
    Log(logger.name).warning("commit.repeated", tasks=3, error="disk is full")
    logger.removeHandler(handler)

    [record] = seen
    assert logging.Formatter("%(levelname)s %(message)s").format(record) == (
        'WARNING commit.repeated tasks=3 error="disk is full"'
    )
    assert json.loads(JsonFormatter().format(record))["event"] == "commit.repeated"
    assert TextFormatter().format(record).endswith('warning commit.repeated          tasks=3 error="disk is full"')

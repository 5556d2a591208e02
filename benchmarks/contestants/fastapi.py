"""FastAPI with pydantic: the same forms and answers behind it, and nothing stored."""

import importlib
import importlib.metadata
import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from benchmarks.contract import HttpContestant, Place, Site, payload
from benchmarks.cores import told
from benchmarks.http_requests import PAGE, TASK_NAME, TASKS
from benchmarks.uvicorn_server import run

ASKED_FOR = 200
MOMENT = "2026-11-16T16:13:07.672Z"


class FastApi:
    def describe(self, place: Place) -> Mapping[str, str]:
        names = ("fastapi", "pydantic", "uvicorn", "uvloop")
        return {
            "version": ", ".join(f"{each} {importlib.metadata.version(each)}" for each in names),
            "set for this run": "httptools, uvloop, no log of requests, as ADE has it",
            "for each request": "the form, the model of the answer",
            "stored": "nothing",
            "runs on": told(),
        }

    def serve(self, place: Place, stock: int, announce: Callable[[Site], None]) -> None:
        models = Models()
        tasks = [models.task(TASK_NAME, {"payload": payload(number, 200)}) for number in range(stock)]
        ids = [task.id for task in tasks[:ASKED_FOR]]
        run(nullcontext(_app(models, tasks)), lambda port: announce(Site(port, "none", ids)))


class Models:
    """Made when they are needed: only this contestant's environment has pydantic."""

    def __init__(self) -> None:
        pydantic = importlib.import_module("pydantic")
        make = pydantic.create_model
        strict = pydantic.ConfigDict(extra="forbid")
        optional = {"queue": (str | None, None), "priority": (int | None, None)}
        self.new = make("NewTask", __config__=strict, name=(str, ...), args=(dict[str, Any], ...), **optional)
        backoff = make(
            "Backoff", base_ms=(int, 1000), multiplier=(float, 2.0), cap_ms=(int, 300_000), jitter=(float, 0.1)
        )
        words = {"after_failure": "cancel", "source": "user", "author_id": "load", "status": "pending"}
        moments = {"created_at": MOMENT, "updated_at": MOMENT}
        numbers = {"priority": 5, "max_attempts": 3, "result_ttl_ms": 604_800_000, "version": 1, "generation": 1}
        counts = dict.fromkeys(("attempt", "timeouts", "throttles"), 0)
        self._task = make(
            "Task",
            id=(str, ...),
            name=(str, ...),
            queue=(str, "default"),
            args=(dict[str, Any], ...),
            backoff=(backoff, backoff()),
            discarded=(bool, False),
            result_expired=(bool, False),
            **{name: (str, value) for name, value in {**words, **moments}.items()},
            **{name: (int, value) for name, value in {**numbers, **counts}.items()},
        )
        self.page = make("Page", items=(list[self._task], ...))  # type: ignore[name-defined]  # made just now

    def task(self, name: str, args: Mapping[str, Any]) -> Any:
        return self._task(id=str(uuid.uuid4()), name=name, args=args)

    @property
    def answer(self) -> Any:
        return self._task


def _app(models: Models, tasks: list[Any]) -> Any:
    app = importlib.import_module("fastapi").FastAPI(openapi_url=None)
    by_id = {task.id: task for task in tasks}

    async def create_task(body: Any) -> Any:
        return models.task(body.name, body.args)

    async def get_task(task_id: str) -> Any:
        return by_id[task_id]

    async def list_tasks(limit: int = PAGE) -> Any:
        return models.page(items=tasks[:limit])

    create_task.__annotations__ = {"body": models.new, "return": models.answer}
    get_task.__annotations__["return"] = models.answer
    list_tasks.__annotations__["return"] = models.page
    app.post(TASKS, status_code=201)(create_task)
    app.get(f"{TASKS}/{{task_id}}")(get_task)
    app.get(TASKS)(list_tasks)
    return app


ALONE: HttpContestant = FastApi()

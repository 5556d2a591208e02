"""The programs that are measured, one module each, behind the protocols of `benchmarks.contract`."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.contract import Contestant, HttpContestant, LockContestant


class Store(StrEnum):
    SQLITE = "sqlite"
    REDIS = "redis"


class Role(StrEnum):
    OWN = "own"
    PEER = "peer"
    FLOOR = "floor"  # the smallest honest program of ADE's design: how fast it could be at best


class Subject(StrEnum):
    """What a contestant does, and a step measures."""

    TASKS = "tasks"
    LOCKS = "locks"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a contestant lives, what it is, and which packages its environment needs."""

    module: str  # in this package, with the name of the object behind a colon
    title: str
    store: Store
    role: Role = Role.PEER
    requirements: str | None = None  # a lock in benchmarks/peers; None is the project's own environment
    steps: Sequence[str] = ()  # the only ones it takes part in; none: all of its subject
    subject: Subject = Subject.TASKS


def _locks(
    module: str,
    title: str,
    store: Store,
    role: Role = Role.PEER,
    requirements: str | None = None,
    *,
    steps: Sequence[str] = (),
) -> Entry:
    return Entry(module, title, store, role, requirements, steps, Subject.LOCKS)


def _http(
    module: str,
    title: str,
    store: Store,
    role: Role = Role.PEER,
    requirements: str | None = None,
    *,
    steps: Sequence[str] = (),
) -> Entry:
    return Entry(module, title, store, role, requirements, steps, Subject.HTTP)


ALONE = ["locks_uncontended"]  # fifty threads that fight tell more of the interpreter than of a lock


ENTRIES = {
    "ade": Entry("ade:SQLITE", "ADE", Store.SQLITE, Role.OWN),
    "huey": Entry("huey:SQLITE", "Huey", Store.SQLITE, requirements="embedded.txt"),
    "persist_queue": Entry("persist_queue:EMBEDDED", "persist-queue", Store.SQLITE, requirements="embedded.txt"),
    "litequeue": Entry("litequeue:EMBEDDED", "litequeue", Store.SQLITE, requirements="embedded.txt"),
    "dbos": Entry("dbos:EMBEDDED", "DBOS", Store.SQLITE, requirements="dbos.txt"),
    "floor": Entry("floor_sqlite:FLOOR", "floor", Store.SQLITE, Role.FLOOR),
    "ade_locks": _locks("ade_locks:SQLITE", "ADE", Store.SQLITE, Role.OWN),
    "ade_http": _http("ade_http:SQLITE", "ADE", Store.SQLITE, Role.OWN),
    "bare": _http("bare:NOTHING", "bare", Store.SQLITE, Role.FLOOR),
    "bare_storing": _http("bare:SQLITE", "bare on ADE's queue", Store.SQLITE, Role.FLOOR, steps=["http_create"]),
    "fastapi": _http("fastapi:ALONE", "FastAPI", Store.SQLITE, requirements="fastapi.txt"),
    "ade_redis": Entry("ade:REDIS", "ADE", Store.REDIS, Role.OWN),
    "ade_redis_blocking": Entry(
        "ade:REDIS_BLOCKING", "ADE, blocking calls", Store.REDIS, Role.OWN, steps=["enqueue_one_by_one"]
    ),
    "saq": Entry("saq:SERVED", "SAQ", Store.REDIS, requirements="saq.txt"),
    "huey_redis": Entry("huey:REDIS", "Huey", Store.REDIS, requirements="huey.txt"),
    "dramatiq": Entry("dramatiq:SERVED", "Dramatiq", Store.REDIS, requirements="dramatiq.txt"),
    "taskiq": Entry("taskiq:SERVED", "taskiq", Store.REDIS, requirements="taskiq.txt"),
    "arq": Entry("arq:SERVED", "arq", Store.REDIS, requirements="arq.txt"),
    "streaq": Entry("streaq:SERVED", "streaq", Store.REDIS, requirements="streaq.txt"),
    "celery": Entry("celery:SERVED", "Celery", Store.REDIS, requirements="celery.txt"),
    "rq": Entry("rq:SERVED", "RQ", Store.REDIS, requirements="rq.txt"),
    "floor_redis": Entry("floor_redis:FLOOR", "floor", Store.REDIS, Role.FLOOR),
    "ade_redis_locks": _locks("ade_locks:REDIS", "ADE", Store.REDIS, Role.OWN),
    "ade_redis_locks_blocking": _locks(
        "ade_locks:REDIS_BLOCKING", "ADE, blocking calls", Store.REDIS, Role.OWN, steps=ALONE
    ),
    "redis_py": _locks("redis_py:AWAITED", "redis-py", Store.REDIS, requirements="locks.txt"),
    "redis_py_blocking": _locks(
        "redis_py:BLOCKING", "redis-py, blocking calls", Store.REDIS, requirements="locks.txt", steps=ALONE
    ),
    "pottery": _locks("pottery:AWAITED", "pottery", Store.REDIS, requirements="locks.txt"),
    "pottery_blocking": _locks(
        "pottery:BLOCKING", "pottery, blocking calls", Store.REDIS, requirements="locks.txt", steps=ALONE
    ),
    # What stores nothing stands beside ADE on both stores: a ratio is taken within one round.
    "ade_redis_http": _http("ade_http:REDIS", "ADE", Store.REDIS, Role.OWN),
    "bare_redis": _http("bare:NOTHING", "bare", Store.REDIS, Role.FLOOR),
    "bare_redis_storing": _http("bare:REDIS", "bare on ADE's queue", Store.REDIS, Role.FLOOR, steps=["http_create"]),
    "fastapi_redis": _http("fastapi:ALONE", "FastAPI", Store.REDIS, requirements="fastapi.txt"),
}


def of_store(store: Store) -> list[str]:
    return [name for name, entry in ENTRIES.items() if entry.store is store]


def peers_of(store: Store, subject: Subject = Subject.TASKS) -> list[str]:
    return [name for name in of_store(store) if ENTRIES[name].role is Role.PEER and ENTRIES[name].subject is subject]


def load(name: str) -> Contestant:
    """Import one queue; only its own environment can."""
    contestant: Contestant = _imported(name, Subject.TASKS)
    return contestant


def load_locks(name: str) -> LockContestant:
    """Import one kind of lock; only its own environment can."""
    contestant: LockContestant = _imported(name, Subject.LOCKS)
    return contestant


def load_http(name: str) -> HttpContestant:
    """Import one server; only its own environment can."""
    contestant: HttpContestant = _imported(name, Subject.HTTP)
    return contestant


def _imported(name: str, subject: Subject) -> Any:
    entry = ENTRIES[name]
    if entry.subject is not subject:
        raise ValueError(f"{name} is about {entry.subject}, not {subject}")
    module, _, variable = entry.module.partition(":")
    return getattr(importlib.import_module(f"benchmarks.contestants.{module}"), variable)

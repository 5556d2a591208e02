"""Live events for many subscribers while tasks are made and run: does everybody get all, how late, at what cost?"""

import asyncio
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import http_processes as processes
from benchmarks.contestants import load
from benchmarks.contract import AsyncClient, Contestant, Options, Site, payload
from benchmarks.cores import keep_store_off, other_cores, stay_on
from benchmarks.figures import percentile
from benchmarks.http_connections import Connection
from benchmarks.http_processes import Talking
from benchmarks.http_requests import body_of, events_page
from benchmarks.http_streams import account, total
from benchmarks.measures import Figures
from benchmarks.starts import Starts
from benchmarks.worker_process import WorkerProcesses

QUEUES = {"ade_http": "ade", "ade_redis_http": "ade_redis"}  # whose producer and worker make the events
AUDIT = "ADE_EVENTS__AUDIT_URL"
TICK_SECONDS = 0.02
LOOK_SECONDS = 0.5
DONE_SECONDS = 10.0
PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How tasks were made and run."""

    began: float  # seconds since the epoch
    seconds: float
    most_mb: float  # that the server had meanwhile


def http_events(name: str, options: Options) -> Figures:
    """Subscribers to everything, from the first event on; tasks come from another process and run in a third one."""
    queue = QUEUES[name]
    options = replace(options, tasks=int(options.rate * options.seconds))
    keep_store_off(options.server, other_cores())
    with processes.server(name, options) as server:
        site = Site(**server.hear())
        memory = {"before_mb": server.resident_megabytes()}
        starts = Starts.create(options.place.folder, options.tasks)
        with (
            _elsewhere(options),
            processes.subscribers(site, options) as crowd,
            WorkerProcesses(queue, options),
        ):
            crowd.hear()
            memory["subscribed_mb"] = server.resident_megabytes()
            used, load_used = server.cpu_seconds(), crowd.cpu_seconds()
            course = asyncio.run(_run_tasks(load(queue), options, server, starts))
            told = crowd.ask("until", last := _log(site)[-1])
            passed = time.time() - course.began
            used, load_used = server.cpu_seconds() - used, crowd.cpu_seconds() - load_used
            log = _log(site)  # again: what has happened since may be among what was received
            memory["loaded_mb"] = max(course.most_mb, server.resident_megabytes())
        time.sleep(options.settle)
        memory["after_mb"] = server.resident_megabytes()
    return {
        "per_second": options.tasks / course.seconds,
        **_figures(told, log, last, course.began, passed),
        "cpu_percent": 100 * used / passed,
        "load_percent": 100 * load_used / passed,
        **memory,
    }


def _figures(told: Any, log: Sequence[int], last: int, began: float, passed: float) -> Figures:
    places = {seq: place for place, seq in enumerate(log)}
    sums = total(account(numbers, places, last) for numbers in told["parts"])
    delays = [1000 * delay for moment, delay in told["delays"] if moment >= began]
    return {
        "deliveries_per_second": sums.received / passed,
        "lost": sums.lost,
        "duplicates": sums.duplicates,
        "delay_p50_ms": percentile(delays, 50),
        "delay_p99_ms": percentile(delays, 99),
        "subscribers": len(told["parts"]),
    }


@contextmanager
def _elsewhere(options: Options) -> Iterator[None]:
    """Whatever is started here stays off the server's core, and shares its audit copy."""
    cores = os.sched_getaffinity(0)
    stay_on(other_cores())
    os.environ[AUDIT] = f"sqlite:///{options.place.folder / 'audit.db'}"
    try:
        yield
    finally:
        del os.environ[AUDIT]
        stay_on(cores)


async def _run_tasks(queue: Contestant, options: Options, server: Talking, starts: Starts) -> Course:
    """Make tasks at the rate asked for, some every moment, and wait until all have started."""
    connection = queue.connect(options.place)
    assert isinstance(connection, AbstractAsyncContextManager)
    async with connection as client:
        wall, began = time.time(), time.perf_counter()
        making = asyncio.create_task(_make(client, options, began))
        sizes = [server.resident_megabytes()]
        while not (making.done() and starts.every_task()):
            if time.perf_counter() > began + options.seconds + DONE_SECONDS:
                raise RuntimeError(f"only {starts.in_order()} of {options.tasks} tasks were run")
            await asyncio.sleep(LOOK_SECONDS if not making.done() else TICK_SECONDS)
            sizes.append(server.resident_megabytes())
        await making
        seconds = time.perf_counter() - began
    return Course(began=wall, seconds=seconds, most_mb=max(sizes))


async def _make(client: AsyncClient, options: Options, began: float) -> None:
    assert client.put_many is not None
    made = 0
    while made < options.tasks:
        await asyncio.sleep(TICK_SECONDS)
        due = min(options.tasks, int((time.perf_counter() - began) * options.rate))
        if due > made:
            await client.put_many([payload(number, options.payload_bytes) for number in range(made, due)])
            made = due


def _log(site: Site) -> list[int]:
    """The seqs of all events so far, as the server tells them page by page."""
    connection, seqs = Connection(site), list[int]()
    try:
        while True:
            page = json.loads(body_of(connection.ask(events_page(site, seqs[-1] if seqs else 0, PAGE))))["items"]
            seqs += [event["seq"] for event in page]
            if len(page) < PAGE:
                return seqs
    finally:
        connection.close()

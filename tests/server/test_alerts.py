"""Alerts: names that no worker runs, workers of another version, tokens about to expire, and who counts as a worker."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser

from ade import VERSION
from tests.domain import (
    ALERT,
    DELIVER,
    NOTIFY_PERSON,
    QUEUE,
    FindingsVerdict,
    Metrics,
    Role,
    Stores,
    User,
    Worker,
    add_user,
    create_token,
    events_after,
    explain,
    find_alerts,
    health,
    overview,
    report_alerts,
)
from tests.server.conftest import start_server
from tests.stores.urls import store_url
from tests.tasks.queue_driver import QueueDriver

DAY_MS = 86_400_000


async def register(stores: Stores, worker_id: str, *names: str, **fields: Any) -> None:
    about = {"hostname": "h", "pid": 1, "started_at": stores.clock.now(), "version": VERSION, **fields}
    await stores.workers.register(Worker(id=worker_id, names=names, **about), [], 600_000)


async def register_server(stores: Stores) -> None:
    """What `ade serve` registers."""
    await register(stores, "server", DELIVER, NOTIFY_PERSON, queues=(QUEUE,))


async def gauges(stores: Stores) -> dict[str, float]:
    _, text = await Metrics(stores, events_after).text()
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


async def alerts(stores: Stores) -> set[tuple[str, str]]:
    return {(alert.what, alert.about) for alert in await find_alerts(stores)}


async def reported(stores: Stores) -> list[tuple[object, object]]:
    events = await stores.events.read(0, 1_000)
    return [(each.payload["what"], each.payload["about"]) for each in events if each.type == ALERT]


async def test_a_server_that_only_delivers_webhooks_is_not_a_worker(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue()
    await register_server(stores)

    told = await explain(stores, task.id)
    assert [reason.code for reason in told.reasons] == ["no_worker"]
    assert told.sentence == "It is pending: no worker is running"
    read = await gauges(stores)
    assert read["ade_workers_active_total"] == 0
    assert read["ade_tasks_without_worker send"] == 1
    report = await health(stores, events_after, timeout_s=90)
    sentences = [finding.sentence for finding in report.findings if finding.check == "workers"]
    assert sentences == ["none is running, and 1 tasks are pending"]
    [view] = (await overview(stores)).workers
    assert view.only_delivers
    assert not view.is_live

    await register(stores, "worker", "send")
    assert (await gauges(stores))["ade_workers_active_total"] == 1
    assert await alerts(stores) == set()


async def test_a_delivery_that_waits_for_the_server_is_explained_by_it(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue(DELIVER, queue=QUEUE, source="system")
    await register_server(stores)

    assert [reason.code for reason in (await explain(stores, task.id)).reasons] == ["ready"]
    assert await alerts(stores) == set()


async def test_a_name_that_no_live_worker_runs_is_an_alert(queue: QueueDriver, stores: Stores) -> None:
    await register(stores, "worker", "send", queues=("mail",))
    await queue.enqueue("send", queue="mail")
    await queue.enqueue("send", queue="default")
    await queue.enqueue("render")
    await queue.enqueue("render")

    assert await alerts(stores) == {("no_worker", "send"), ("no_worker", "render")}
    read = await gauges(stores)
    assert (read["ade_tasks_without_worker send"], read["ade_tasks_without_worker render"]) == (1, 2)
    report = await health(stores, events_after, timeout_s=90)
    found = [finding.sentence for finding in report.findings if finding.check == "alerts"]
    assert "2 tasks named 'render' wait, and no live worker runs this name in its queue" in found
    assert report.verdict is FindingsVerdict.WARNING


async def test_a_worker_that_went_silent_runs_nothing(queue: QueueDriver, stores: Stores) -> None:
    await register(stores, "worker", "send")
    await queue.enqueue("send")
    assert await alerts(stores) == set()
    queue.clock.advance(700)
    assert await alerts(stores) == {("no_worker", "send")}


async def test_a_worker_of_another_version_is_an_alert(stores: Stores) -> None:
    await register(stores, "current", "send")
    await register(stores, "old", "send", version="0.0.1")
    await register(stores, "http:ada:ruby", "send", version="ruby 3")  # another program, with versions of its own

    assert await alerts(stores) == {("worker_version", "old")}
    assert (await gauges(stores))["ade_workers_other_version_total"] == 1


@pytest.mark.parametrize(("days", "ages"), [(90, (0, 82, 84, 91)), (4, (0, 2, 3.5, 5))])
async def test_a_token_about_to_expire_is_an_alert(
    queue: QueueDriver, stores: Stores, days: int, ages: tuple[float, ...]
) -> None:
    await add_user(stores, User(id="ada", roles=frozenset({Role.OPERATOR})))
    _, token = await create_token(stores, "ada", lasts_ms=days * DAY_MS)
    begin, found = queue.clock.now(), []
    for age in ages:
        queue.clock.advance(age * DAY_MS / 1000 - (queue.clock.now() - begin) / 1000)
        read = await gauges(stores)
        found.append((await alerts(stores), read["ade_tokens_expiring_total"]))

    alert = {("token_expires", token.id)}
    assert found == [(set(), 0), (set(), 0), (alert, 1), (set(), 0)]


async def test_an_alert_is_reported_once_when_it_has_lasted(queue: QueueDriver, stores: Stores) -> None:
    task = await queue.enqueue("send")
    for seconds in (0, 30):
        queue.clock.advance(seconds)
        await report_alerts(stores)
    assert await reported(stores) == []  # a worker might just be restarting
    for _ in range(3):
        queue.clock.advance(30)
        await report_alerts(stores)
    assert await reported(stores) == [("no_worker", "send")]

    await register(stores, "worker", "send")
    await report_alerts(stores)
    await stores.workers.deregister("worker")
    for _ in range(3):
        await report_alerts(stores)
        queue.clock.advance(60)
    assert await reported(stores) == [("no_worker", "send")] * 2  # it began again
    assert (await queue.get(task)).status == "pending"


async def test_a_store_without_alerts_is_not_written(queue: QueueDriver, stores: Stores) -> None:
    before = await stores.events.last_seq()
    assert await report_alerts(stores) == 0
    assert await stores.events.last_seq() == before
    assert await stores.documents.list_documents("standing_alerts") == []


async def test_doctor_and_the_list_of_workers_say_who_only_delivers(tmp_path: Path) -> None:
    async with start_server(store_url("sqlite", tmp_path), tmp_path) as server:
        await register_server(server.stores)
        listed = (await server.ask("GET", "/api/v1/workers")).json()["items"]
        assert {each["worker"]["id"]: each["only_delivers"] for each in listed} == {"server": True, "w": False}
        found = (await server.ask("GET", "/api/v1/health")).json()["findings"]
        assert "1 running" in [each["sentence"] for each in found if each["check"] == "workers"]

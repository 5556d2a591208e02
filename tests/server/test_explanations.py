"""Answers that explain something: a sentence for everybody, advice for who sits at a command line, and facts."""

import ade
from ade import Client
from ade.client.store_transport import StoreTransport
from ade.composition.app_store import services_of_app
from tests.domain import RequestContext, Role
from tests.server.conftest import ServerHarness

API = "/api/v1"
LATER = "2031-01-31T12:00:00.000Z"


async def test_the_facts_of_a_reason_say_when_as_everything_does(server: ServerHarness) -> None:
    task = await server.task(run_at=LATER)
    told = (await server.ask("GET", f"{API}/tasks/{task['id']}/explain")).json()

    [delayed, *_] = told["reasons"]
    assert (delayed["code"], delayed["facts"]["run_after"]) == ("delayed", LATER)
    async with ade.connect(server.url, token=await server.token(Role.VIEWER)) as far:
        there = await far.explain_task(task["id"])
    near = Client(
        StoreTransport(services_of_app(server.app, await server.app.open()), RequestContext(actor="me", author="me"))
    )
    here = await near.explain_task(task["id"])
    assert [each.facts for each in there.reasons] == [each.facts for each in here.reasons]
    assert [each.advice for each in there.reasons] == [each.advice for each in here.reasons]


async def test_commands_are_hints_and_no_part_of_a_sentence(server: ServerHarness) -> None:
    task = await server.task(queue="mail")
    await server.ask("POST", f"{API}/queues/mail/pause", {})
    why = (await server.ask("GET", f"{API}/tasks/{task['id']}/explain")).json()
    health = (await server.ask("GET", f"{API}/health", by=Role.ADMIN)).json()

    assert (why["sentence"], why["reasons"][0]["advice"]) == (
        "It is pending: the queue 'mail' is paused",
        "`ade queues resume mail` resumes it",
    )
    for told in (*why["reasons"], *health["findings"]):
        assert "`ade" not in told["sentence"]
        assert None not in told.get("facts", {}).values()

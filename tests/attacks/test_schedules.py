"""Attack: a schedule hides its author. One account writes it, another saves it again, and the first one approves."""

from tests.attacks.site import Site

GUARD = [{"do": "demand", "name": "pay", "policy": "one", "reason": "money"}]
POLICY = [{"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}]
SCHEDULE = {"cron": "0 0 1 1 *", "task_name": "pay", "args": {"to": "mallory"}}


async def test_whoever_wrote_a_schedule_before_cannot_approve_what_it_makes(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    for writer in ("mallory", "olga"):
        saved = await site.ask(writer, "PUT", "/schedules/rent", SCHEDULE)
        assert saved.status == 200, saved
    task = (await site.ask("olga", "POST", "/schedules/rent/fire")).json()
    refused = await site.vote("mallory", task["id"])
    assert (refused.status, await site.status(task["id"]), site.done) == (403, "reviewing", [])
    await site.vote("rita", task["id"])
    await site.until(task["id"], "completed")


async def test_nor_can_whoever_fires_it(site: Site) -> None:
    await site.rules(guard=GUARD, policy=POLICY)
    await site.ask("olga", "PUT", "/schedules/rent", SCHEDULE)
    task = (await site.ask("mallory", "POST", "/schedules/rent/fire")).json()
    refused = await site.vote("mallory", task["id"])
    assert (refused.status, await site.status(task["id"]), site.done) == (403, "reviewing", [])

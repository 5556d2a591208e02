"""What is told of approvals, from stories that take every turn."""

from contextlib import suppress

from ade import Denied
from ade.approvals import service as approvals_service
from ade.tasks import service as tasks_service
from tests.approvals.scene import APPROVE, CHANGES, ONE, REJECT, RESPOND, Scene, scene

_HOUR, _DAY = 3_600, 86_400
_STEPS = [{"after": "1h", "roles": ["admin"]}]
_NOBODY = {"id": "nobody", "tags": ["stuck"], "rules": [{"needed": 2, "users": ["yan", "zoe"]}]}
_DENIED = [
    {"name": "deploy", "when": {"what": "prison"}, "do": "deny", "reason": "never"},
    {"name": "publish:rollback", "do": "deny", "reason": "published is published"},
]


async def of_approvals() -> dict[str, list[set[str]]]:
    """Every type of event, and the fields of the payloads it was seen with."""
    async with scene() as here:
        await here.people(ada="operator", bob="reviewer", cyd="reviewer", root="admin")
        await here.rules({**ONE, "steps": _STEPS}, _NOBODY, guard=_DENIED)
        await _approved_and_taken_back(here)
        await _changed(here)
        await _not_approved(here)
        await _stuck(here)
        await _responded(here)
        await _not_rolled_back(here)
        seen: dict[str, list[set[str]]] = {}
        for event in await here.stores.events.read(0, 10_000):
            seen.setdefault(event.type, []).append(set(event.payload))
        return seen


async def _approved_and_taken_back(here: Scene) -> None:
    draft = await here.app.draft("deploy", {"what": "shop"}, author="ada", start="by_hand")
    await draft.submit(by="ada")
    await here.kit.drain()
    await approvals_service.comment(here.stores, draft.id, "looks good", actor="bob")
    await here.vote(draft, "bob")
    await approvals_service.revoke(here.stores, draft.id, "not today", actor="bob")
    await here.vote(draft, "bob")
    await draft.start(by="ada")
    here.versions["site"] = "v2"
    await here.kit.drain()  # held: it must be previewed again
    now = here.kit.clock.now()
    await approvals_service.break_glass(here.stores, draft.id, "fire", actor="root", authenticated_at=now)


async def _changed(here: Scene) -> None:
    task = await here.asked("bank")
    await here.vote(task, "bob", CHANGES)
    await approvals_service.dismiss(here.stores, task.id, "bob", "away", actor="root")
    other = await here.asked("bakery")
    await here.vote(other, "bob", CHANGES)
    await here.vote(other, "bob", APPROVE)
    await here.vote(await here.asked("zoo"), "cyd", REJECT)
    await tasks_service.cancel(here.stores, task.id)


async def _not_approved(here: Scene) -> None:
    with suppress(Denied):
        await here.app.enqueue("deploy", {"what": "prison"})
    task = await here.asked("port")
    await here.kit.advance(_HOUR)
    await here.kit.advance(_DAY)
    assert (await task.status()) == "rejected"


async def _stuck(here: Scene) -> None:
    await here.asked("island", tags=["stuck"])
    await here.people(yan="reviewer", zoe="reviewer")
    await here.kit.advance(10)


async def _not_rolled_back(here: Scene) -> None:
    task = await here.app.enqueue("publish", {"page": "home"}, author="ada", rollback="automatic")
    await here.kit.drain()
    await here.vote(task, "bob", REJECT)


async def _responded(here: Scene) -> None:
    task = await here.app.enqueue("publish", {"page": "home"}, author="ada")
    await here.kit.drain()
    await here.vote(task, "bob", RESPOND, reason="", text="tomorrow")
    await here.kit.drain()
    assert (await task.status()) == "completed"

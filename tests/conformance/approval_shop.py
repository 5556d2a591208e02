"""Where histories of approvals happen: the people, the rules, and what workers know; and clients that go deaf."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from msgspec import structs
from msgspec.structs import replace

from ade.approvals import repository as approvals_repository
from ade.errors import StoreUnavailable
from ade.stores.ports import Stores, TaskStore
from ade.tasks.handlers import Handler, HandlerMode, Registry
from tests.domain import Definition, Signature, User, Worker, add_user, read_rulebook
from tests.worker.harness import Replaced

PERSONS = {"bob2": "bob", "ada2": "ada"}
PROGRAMS = {"bot": "cy"}
ROLES = {
    "ada": "reviewer",
    "ada2": "reviewer dba",
    "bob": "reviewer",
    "bob2": "reviewer",
    "cy": "reviewer dba",
    "dee": "reviewer dba",
    "eve": "admin",
    "vic": "viewer",
}
PLAIN, PREVIEWED = "deploy", "plan"
_TIMES = {"expires_after": "1h", "valid_for": "30m"}
POLICIES: tuple[dict[str, Any], ...] = (
    {"rules": [{"needed": 2, "roles": ["reviewer"]}], **_TIMES},
    {"rules": [{"needed": 1, "roles": ["reviewer"]}, {"needed": 1, "roles": ["dba"]}], **_TIMES},
    {"rules": [{"needed": 2, "roles": ["reviewer"]}], "deny_threshold": 2, "veto_roles": ["dba"], **_TIMES},
    {"rules": [{"needed": 1, "users": ["bob"]}], "steps": [{"after": "10m", "roles": ["dba"]}], **_TIMES},
)


async def open_shop(stores: Stores, registry: Registry, policy: dict[str, Any]) -> None:
    """Everybody is there, this policy holds for both kinds of tasks, and a worker has told what it can do."""
    await add_people(stores)
    ours = {"id": "ours", "names": [PLAIN, PREVIEWED], **policy}
    rules = {"policy": [ours], "criticality": {"prod:*": 100}, "risk": {"unknown_resources": "low"}}
    await approvals_repository.apply(stores, read_rulebook(rules), actor="eve")
    await register_worker(stores, registry, "1")


async def register_worker(stores: Stores, registry: Registry, version: str) -> None:
    """A worker is there, with this version of the code."""
    worker = Worker(id="w", hostname="h", pid=1, started_at=stores.clock.now(), version="1")
    definitions = [structs.replace(handler.definition, version=version) for handler in registry]
    await stores.workers.register(worker, definitions, 30_000)


async def add_people(stores: Stores) -> None:
    """Add the accounts of all people and programs."""
    people = [User(id=each, roles=frozenset(ROLES[each].split()), person=PERSONS.get(each, "")) for each in ROLES]
    programs = [User(id=each, roles=frozenset({"agent"}), is_human=False, owner=PROGRAMS[each]) for each in PROGRAMS]
    for users in (people, programs):
        await asyncio.gather(*(add_user(stores, user) for user in users))


def shop_registry() -> Registry:
    made = Registry()
    for name in (PLAIN, PREVIEWED):
        made.add(handler_of(Definition(name=name, has_preview=name == PREVIEWED)))
    return made


def handler_of(definition: Definition) -> Handler:
    """A handler that does nothing."""
    return Handler(
        name=definition.name,
        function=_nothing,
        signature=Signature.of(_nothing),
        mode=HandlerMode.ASYNC,
        definition=definition,
    )


async def _nothing(number: int) -> None: ...


def without_answers(stores: Stores) -> Stores:
    """What is written stays written, but whoever wrote it hears of nothing."""

    def lost(write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def then_silence(*args: Any, **kwargs: Any) -> Any:
            await write(*args, **kwargs)
            raise StoreUnavailable("the connection is gone")

        return then_silence

    tasks = stores.tasks
    cut = {name: lost(getattr(tasks, name)) for name in ("commit", "commit_each", "add")}
    return replace(stores, tasks=cast(TaskStore, Replaced(tasks, cut)))

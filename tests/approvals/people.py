"""People who approve: a rulebook that holds `greet` until a reviewer agrees, and ways to ask as somebody."""

from typing import Any

from ade import Task
from ade.accounts.model import Caller, LoginSession, Permission, User
from ade.accounts.users import add_user, get_user
from ade.approvals import api as approvals_api
from ade.approvals import api_rulebook
from ade.approvals.api import AnswerApproval
from ade.approvals.api_rulebook import ApplyRulebook
from ade.approvals.views import Voted
from ade.server.operation import check_access
from ade.tasks.api import create
from tests.domain import ROUTE_OF, Decision, HashCost, NewTask, RequestContext, create_token, use_token
from tests.server.operations import LOCAL, Operations

ONE: dict[str, Any] = {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}
TWO: dict[str, Any] = {"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]}
HELD = {"do": "demand", "name": "greet", "reason": "somebody should look", "policy": "one"}
PASSWORD = "correct horse battery"
CHEAP = HashCost(n=16, r=1, p=1)
HIGH: dict[str, Any] = {"resources": ["db:*"]}  # of a critical kind, and all of it


async def person(ops: Operations, name: str, *roles: str, **more: Any) -> User:
    """With a password."""
    user = User(id=name, roles=frozenset(roles), **more)
    return await add_user(ops.services.stores, user, password=PASSWORD, cost=CHEAP)


async def council(ops: Operations, policy: dict[str, Any] = ONE, **rules: Any) -> None:
    """Ada writes and reviews, bob and cy review, root is the admin, zoe only writes; what is called `greet` is held."""
    await person(ops, "ada", "operator", "reviewer")
    await person(ops, "bob", "reviewer")
    await person(ops, "cy", "reviewer")
    await person(ops, "root", "admin")
    await person(ops, "zoe", "operator")
    held = {**HELD, "policy": policy["id"]}
    # These stories are about people: a task that names nothing is harmless here.
    harmless = {"unknown_resources": "low"}
    rulebook = {"guard": [held], "policy": [policy], "criticality": {"db:*": 100}, "risk": harmless, **rules}
    await api_rulebook.apply_rulebook(ops.services, LOCAL, ApplyRulebook(rules=rulebook))


def as_caller(caller: Caller, operation: str, **more: Any) -> RequestContext:
    """Raises NotPermitted."""
    access = check_access(ROUTE_OF[operation], caller)
    return RequestContext(actor=caller.user.id, author=caller.user.id, caller=caller, access=access, **more)


async def by(ops: Operations, name: str, operation: str, *, confirmed_at: int = 0, **more: Any) -> RequestContext:
    """As this account asks now, in a session. Raises NotPermitted."""
    now = ops.clock.now()
    session = LoginSession(
        id="0" * 64, account=name, created_at=now, last_active_at=now, reauthenticated_at=confirmed_at
    )
    return as_caller(Caller(user=await get_user(ops.services.stores, name), session=session), operation, **more)


async def fresh(ops: Operations, name: str, operation: str, **more: Any) -> RequestContext:
    """The same, with the password given just now, as everything takes that gives access."""
    return await by(ops, name, operation, confirmed_at=ops.clock.now(), **more)


async def through_token(ops: Operations, name: str, operation: str, *scopes: Permission) -> RequestContext:
    """The same through an access token."""
    secret, _ = await create_token(ops.services.stores, name, scopes=frozenset(scopes) or None)
    return as_caller(await use_token(ops.services.stores, secret), operation)


async def held(ops: Operations, author: str = "ada", **more: Any) -> Task:
    """A task that waits for people."""
    request = RequestContext(actor=f"cli:{author}", author=author)
    return await create.create_task(ops.services, request, NewTask(name="greet", args={"name": "Ada"}, **more))


def digest_of(task: Task) -> str:
    assert task.review is not None
    assert task.review.gate is not None
    return task.review.gate.digest


def shown(task: Task) -> dict[str, Any]:
    """What a reviewer of the task has seen."""
    return {"approval": f"{task.id}.1", "digest": digest_of(task)}


async def answer(
    ops: Operations, request: RequestContext, task: Task, decision: Decision = Decision.APPROVE, **more: Any
) -> Voted:
    gate = None if task.review is None else task.review.gate
    seen = {"approval": f"{task.id}.1", "digest": "0" * 64}
    if gate is not None:
        seen = {"approval": gate.id, "digest": gate.digest}
    form = AnswerApproval(decision=decision, **(seen | more))
    return await approvals_api.respond_to_approval(ops.services, request, task.id, form)

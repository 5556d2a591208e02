"""People who approve: a rulebook that holds `greet` until a reviewer agrees, and ways to ask as somebody."""

from typing import Any

from ade.core.accounts.callers import Caller
from ade.core.accounts.permissions import Permission
from ade.core.accounts.sessions import LoginSession
from ade.core.accounts.users import User
from ade.core.approvals.records import Decision
from ade.core.records import Task
from ade.core.web.forms.approvals import AnswerApproval
from ade.core.web.forms.policies import ApplyRulebook
from ade.core.web.forms.tasks import NewTask
from ade.core.web.routes.table import ROUTE_OF
from ade.core.web.routing import check_access
from ade.governance.directory.passwords import Cost
from ade.governance.directory.tokens import create_token, use_token
from ade.governance.directory.users import add_user, get_user
from ade.insight.approval_views import Voted
from ade.operations import approval_answers, policies, tasks
from ade.operations.kit import Asked
from tests.operations.conftest import LOCAL, Desk

ONE: dict[str, Any] = {"id": "one", "rules": [{"needed": 1, "roles": ["reviewer"]}]}
TWO: dict[str, Any] = {"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}]}
HELD = {"do": "demand", "name": "greet", "reason": "somebody should look", "policy": "one"}
PASSWORD = "correct horse battery"
CHEAP = Cost(n=16, r=1, p=1)
HIGH: dict[str, Any] = {"resources": ["db:*"]}  # of a critical kind, and all of it


async def person(desk: Desk, name: str, *roles: str, **more: Any) -> User:
    """With a password."""
    user = User(id=name, roles=frozenset(roles), **more)
    return await add_user(desk.office.stores, user, password=PASSWORD, cost=CHEAP)


async def council(desk: Desk, policy: dict[str, Any] = ONE, **rules: Any) -> None:
    """Ada writes and reviews, bob and cy review, root is the admin; what is called `greet` is held."""
    await person(desk, "ada", "operator", "reviewer")
    await person(desk, "bob", "reviewer")
    await person(desk, "cy", "reviewer")
    await person(desk, "root", "admin")
    held = {**HELD, "policy": policy["id"]}
    rulebook = {"guard": [held], "policy": [policy], "criticality": {"db:*": 100}, **rules}
    await policies.apply_rulebook(desk.office, LOCAL, ApplyRulebook(rules=rulebook))


def as_caller(caller: Caller, operation: str, **more: Any) -> Asked:
    """Raises NotPermitted."""
    access = check_access(ROUTE_OF[operation], caller)
    return Asked(actor=caller.user.id, author=caller.user.id, caller=caller, access=access, **more)


async def by(desk: Desk, name: str, operation: str, *, confirmed_at: int = 0, **more: Any) -> Asked:
    """As this account asks now, in a session. Raises NotPermitted."""
    now = desk.clock.now()
    session = LoginSession(
        id="0" * 64, account=name, created_at=now, last_active_at=now, reauthenticated_at=confirmed_at
    )
    return as_caller(Caller(user=await get_user(desk.office.stores, name), session=session), operation, **more)


async def through_token(desk: Desk, name: str, operation: str, *scopes: Permission) -> Asked:
    """The same through an access token."""
    secret, _ = await create_token(desk.office.stores, name, scopes=frozenset(scopes) or None)
    return as_caller(await use_token(desk.office.stores, secret), operation)


async def held(desk: Desk, author: str = "ada", **more: Any) -> Task:
    """A task that waits for people."""
    asked = Asked(actor=f"cli:{author}", author=author)
    return await tasks.create_task(desk.office, asked, NewTask(name="greet", args={"name": "Ada"}, **more))


def digest_of(task: Task) -> str:
    assert task.review is not None
    assert task.review.gate is not None
    return task.review.gate.digest


async def answer(desk: Desk, asked: Asked, task: Task, decision: Decision = Decision.APPROVE, **more: Any) -> Voted:
    digest = more.pop("digest", None) or digest_of(task)
    form = AnswerApproval(decision=decision, digest=digest, **more)
    return await approval_answers.respond_to_approval(desk.office, asked, task.id, form)

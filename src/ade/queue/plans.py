"""From a definition and options to tasks. What all tasks of a plan share is checked once, not for every task."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import Raw, structs

from ade.core.approvals.records import Review
from ade.core.errors import InvalidTask
from ade.core.ids import uuid7
from ade.core.records import Definition, Task
from ade.core.task import admit
from ade.queue.defaults import TaskDefaults
from ade.queue.ids import fresh_id
from ade.queue.signature import Signature

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
_UNUSED_ID = uuid7(0, bytes(10))  # stands for the id while a template is checked


def template_of(definition: Definition, defaults: TaskDefaults) -> Task:
    """The task that a plain call of this definition makes, apart from its id and arguments."""

    def first(declared: T | None, default: T) -> T:
        return default if declared is None else declared

    return Task(
        id=_UNUSED_ID,
        name=definition.name,
        queue=definition.queue,
        priority=definition.priority,
        timeout_ms=first(definition.timeout_ms, defaults.timeout_ms) or None,
        max_attempts=first(definition.max_attempts, defaults.max_attempts),
        backoff=first(definition.backoff, defaults.backoff),
        result_ttl_ms=first(definition.result_ttl_ms, defaults.result_ttl_ms) or None,
        needs=definition.needs,
        review=Review(has_preview=True) if definition.has_preview else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to make tasks: a checked template and what depends on the moment, the arguments or the batch."""

    template: Task
    delay_ms: int = 0
    deadline_in_ms: int | None = None
    after: tuple["str | Invocation[Any]", ...] = ()  # only when calls of the same batch are among them

    # Whether the template, checked once, vouches for every task made from it.
    is_constant: bool = field(init=False)

    def __post_init__(self) -> None:
        """Raises InvalidTask for a template that could never be enqueued."""
        admit(self.template, now=0)
        constant = not self.delay_ms and self.deadline_in_ms is None and self.template.idempotency_key is None
        object.__setattr__(self, "is_constant", constant)  # the way to fill a field of a frozen class

    def make(self, args: Raw, *, now: int, key: str | None = None) -> Task:
        """A new task, ready to be stored. `key` is a concurrency key made from the arguments."""
        template, task_id = self.template, fresh_id(now)
        if self.is_constant and key is None:
            return structs.replace(template, id=task_id, args=args, created_at=now, updated_at=now)
        made = structs.replace(
            template,
            id=task_id,
            args=args,
            run_after=now + self.delay_ms if self.delay_ms else template.run_after,
            deadline=template.deadline if self.deadline_in_ms is None else now + self.deadline_in_ms,
            concurrency_key=key if key is not None else template.concurrency_key,
        )
        return admit(made, now=now)


class Invocation(Generic[R_co]):
    """A call written down: which task, with which arguments and options. Nothing is stored yet."""

    __slots__ = ("args", "key", "plan", "signature")

    def __init__(self, plan: Plan, args: Raw, *, key: str | None = None, signature: Signature | None = None) -> None:
        self.plan = plan
        self.args = args
        self.key = key
        self.signature = signature

    def __repr__(self) -> str:
        return f"<call of {self.plan.template.name}>"


def make_tasks(invocations: Sequence[Invocation[Any]], *, now: int, parent_id: str | None = None) -> list[Task]:
    """The tasks of one batch; those that wait for other calls of the batch get their ids."""
    tasks = [_make(invocation, now=now, parent_id=parent_id) for invocation in invocations]
    if not any(invocation.plan.after for invocation in invocations):
        return tasks
    ids: dict[int, list[str]] = {}  # a call may stand in the batch more than once
    for invocation, task in zip(invocations, tasks, strict=True):
        ids.setdefault(id(invocation), []).append(task.id)
    return [
        _waiting(task, invocation.plan.after, ids, now=now) if invocation.plan.after else task
        for invocation, task in zip(invocations, tasks, strict=True)
    ]


def _make(invocation: Invocation[Any], *, now: int, parent_id: str | None) -> Task:
    task = invocation.plan.make(invocation.args, now=now, key=invocation.key)
    if parent_id is None or task.parent_id is not None:
        return task
    return structs.replace(task, parent_id=parent_id)


def _waiting(task: Task, after: Sequence["str | Invocation[Any]"], ids: dict[int, list[str]], *, now: int) -> Task:
    """The task with the ids of all it waits for."""
    depends_on: list[str] = []
    for earlier in after:
        if isinstance(earlier, str):
            depends_on.append(earlier)
        elif id(earlier) in ids:
            depends_on += ids[id(earlier)]
        else:
            raise InvalidTask(f"`after` names {earlier!r}, which is not part of this batch; enqueue it in the same one")
    return admit(structs.replace(task, depends_on=tuple(depends_on)), now=now)

"""Build tasks from definitions and options, and store them.

A plan checks what its tasks share once, not for every task. Storing checks for dependency cycles and moves large
arguments to the blob store.
"""

import os
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from msgspec import Raw, structs

from ade.approvals.model import Review
from ade.errors import AdeError, DiskFull, InvalidTask, StoreError
from ade.settings.sections import TaskSettings
from ade.stores.ports import Stores
from ade.tasks.admission import admit, check_no_cycle
from ade.tasks.arguments import Signature
from ade.tasks.model import Definition, Task
from ade.tasks.option_values import read_id, read_moment, read_ms
from ade.tasks.options import TaskOptions, check_known, plain_fields, reviewed
from ade.tasks.payloads import Payloads

MOST_TOGETHER = 50_000  # tasks per call: one transaction writes them all, and blocks other writers


async def enqueue(stores: Stores, payloads: Payloads, tasks: Sequence[Task]) -> list[Task]:
    """Check and store new tasks, all or none. A task whose idempotency key is known is returned as stored."""
    now = stores.clock.now()
    return await enqueue_plan(stores, payloads, [admit(task, now=now) for task in tasks])


async def enqueue_plan(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> list[Task]:
    """Store admitted tasks after a check for dependency cycles; the store wakes a worker."""
    check_cycles(admitted)
    return await store(stores, payloads, admitted)


def store(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> Awaitable[list[Task]]:
    """Store admitted tasks that were checked for cycles. Raises InvalidTask for more than MOST_TOGETHER."""
    if len(admitted) > MOST_TOGETHER:
        raise InvalidTask(f"{len(admitted)} tasks in one call are too many; give at most {MOST_TOGETHER} at a time")
    for task in admitted:
        if not payloads.fits(task.args):
            return _store_spilled(stores, payloads, admitted)
    return stores.tasks.add(admitted)


def store_blocking(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> list[Task] | None:
    """Like `enqueue_plan` without an event loop. On None, pass the same tasks to `store`.

    Returns None for large arguments, for more than MOST_TOGETHER tasks, and while servers are unreachable.
    """
    check_cycles(admitted)
    if stores.blocking is None or len(admitted) > MOST_TOGETHER:
        return None
    for task in admitted:
        if not payloads.fits(task.args):
            return None
    return stores.blocking.add(admitted)


def check_cycles(admitted: Sequence[Task]) -> None:
    """Raise DependencyCycle if the tasks depend on each other in a cycle."""
    for task in admitted:
        if task.depends_on:
            check_no_cycle(admitted)
            return


async def _store_spilled(stores: Stores, payloads: Payloads, admitted: Sequence[Task]) -> list[Task]:
    """Store large arguments before the records that refer to them, and remove the blobs that no record uses."""
    own = {task.id for task in admitted}
    try:
        spilled = [await _spilled(payloads, task) for task in admitted]
    except AdeError:
        await stores.blobs.remove_blobs(sorted(own))
        raise
    try:
        stored = await stores.tasks.add(spilled)
    except AdeError as error:
        # After other store errors the outcome is unknown. The tasks may have been stored, so the blobs are kept, as
        # they are when the caller is cancelled.
        if isinstance(error, DiskFull) or not isinstance(error, StoreError):
            await stores.blobs.remove_blobs(sorted(own))
        raise
    await stores.blobs.remove_blobs(sorted(own - {task.id for task in stored}))
    return stored


async def _spilled(payloads: Payloads, task: Task) -> Task:
    if payloads.is_kept(task.id, task.args):  # the guard has already spilled it
        return task
    return structs.replace(task, args=await payloads.spill(task.id, "args", task.args))


# New IDs are UUIDv7. Random bytes are read in bulk: one system call per task would dominate the cost of an enqueue.


_VARIANT = {f"{digit:x}": f"{0x8 | digit & 0x3:x}" for digit in range(16)}  # sets the two fixed bits
_EACH, _DRAWN = 10, 400
_pieces: list[bytes] = []  # `pop` is atomic, so no two threads get the same bytes

# A child process must not reuse the bytes of its parent.
os.register_at_fork(after_in_child=_pieces.clear)


def uuid7(now_ms: int, entropy: bytes) -> str:
    """Return a UUIDv7 in its canonical text form. `entropy` is ten random bytes."""
    time, rest = f"{now_ms & 0xFFFFFFFFFFFF:012x}", entropy.hex()
    return f"{time[:8]}-{time[8:]}-7{rest[1:4]}-{_VARIANT[rest[4]]}{rest[5:8]}-{rest[8:20]}"


def fresh_id(now_ms: int) -> str:
    """Return a new ID, such as that of a task."""
    try:
        piece = _pieces.pop()
    except IndexError:
        piece = _draw()
    return uuid7(now_ms, piece)


def _draw() -> bytes:
    drawn = os.urandom(_EACH * _DRAWN)
    _pieces.extend(drawn[start : start + _EACH] for start in range(_EACH, len(drawn), _EACH))
    return drawn[:_EACH]


T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
_UNUSED_ID = uuid7(0, bytes(10))  # placeholder while a template is checked


def template_of(definition: Definition, defaults: TaskSettings) -> Task:
    """Return the task that a call without options creates, except for its ID and arguments."""

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
        resources=definition.resources,
        tags=definition.tags,
        review=Review(has_preview=True) if definition.has_preview else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """How to create tasks: a checked template, plus the parts that depend on the time, arguments, or batch."""

    template: Task
    delay_ms: int = 0
    deadline_in_ms: int | None = None
    after: tuple["str | Invocation[Any]", ...] = ()  # only set if it includes calls of the same batch

    # Whether every task made from the template is valid because the template is.
    is_constant: bool = field(init=False)

    def __post_init__(self) -> None:
        """Raise InvalidTask for a template that could never be enqueued."""
        admit(self.template, now=0)
        constant = not self.delay_ms and self.deadline_in_ms is None and self.template.idempotency_key is None
        object.__setattr__(self, "is_constant", constant)  # the dataclass is frozen

    def make(self, args: Raw, *, now: int, key: str | None = None) -> Task:
        """Return a new task, ready to be stored. `key` is a concurrency key computed from the arguments."""
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

    def __init__(
        self, plan: TaskPlan, args: Raw, *, key: str | None = None, signature: Signature | None = None
    ) -> None:
        self.plan = plan
        self.args = args
        self.key = key
        self.signature = signature

    def __repr__(self) -> str:
        return f"<call of {self.plan.template.name}>"


def make_plan(template: Task, options: TaskOptions) -> TaskPlan:
    """Return a plan for tasks with these options. Raises InvalidTask."""
    given: Mapping[str, Any] = options
    check_known(given, TaskOptions)
    fields = plain_fields(given)
    if "delay" in given and "run_at" in given:
        raise InvalidTask("give either `delay` or `run_at`, not both")
    deadline_in_ms = None
    if isinstance(given.get("deadline"), datetime):
        fields["deadline"] = read_moment("deadline", given["deadline"])
    elif "deadline" in given:
        deadline_in_ms = read_ms("deadline", given["deadline"])
    review = reviewed(template.review, given)
    if review is not None:
        fields["review"] = review
    after = tuple(other if isinstance(other, Invocation) else read_id("after", other) for other in _after(given))
    in_batch = any(isinstance(other, Invocation) for other in after)
    if not in_batch:
        fields["depends_on"] = after
    return TaskPlan(
        template=structs.replace(template, **fields),
        delay_ms=read_ms("delay", given["delay"], least=0) if "delay" in given else 0,
        deadline_in_ms=deadline_in_ms,
        after=after if in_batch else (),
    )


def _after(given: Mapping[str, Any]) -> Sequence[Any]:
    after = given.get("after", ())
    if isinstance(after, str) or not isinstance(after, Iterable):
        raise InvalidTask("after must be a list of handles, ids or calls of the same batch")
    return tuple(after)


def make_tasks(invocations: Sequence[Invocation[Any]], *, now: int, parent_id: str | None = None) -> list[Task]:
    """Create the tasks of one batch, and resolve the dependencies between its calls to task IDs."""
    tasks = [_make(invocation, now=now, parent_id=parent_id) for invocation in invocations]
    if not any(invocation.plan.after for invocation in invocations):
        return tasks
    ids: dict[int, list[str]] = {}  # the same call can occur in the batch more than once
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
    """Return the task with the IDs of all its dependencies."""
    depends_on: list[str] = []
    for earlier in after:
        if isinstance(earlier, str):
            depends_on.append(earlier)
        elif id(earlier) in ids:
            depends_on += ids[id(earlier)]
        else:
            raise InvalidTask(f"`after` names {earlier!r}, which is not part of this batch; enqueue it in the same one")
    return admit(structs.replace(task, depends_on=tuple(depends_on)), now=now)

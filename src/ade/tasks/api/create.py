"""HTTP operations that create tasks: one task, or a batch whose tasks can depend on each other."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from ade.accounts.model import Permission
from ade.errors import AdeError, InvalidTask, WaitTimeout
from ade.server.context import RequestContext, Services, account_of, check_own, readable_ids, scope_of
from ade.server.idempotency import OF_OTHERS, own_task_key
from ade.server.operation import ETagUse, operation
from ade.tasks.admission import admit, unknown_dependency
from ade.tasks.api.requests import CreatedTasks, linked
from ade.tasks.definitions import checked_arguments
from ade.tasks.enqueue import Invocation, TaskPlan, make_plan, make_tasks, template_of
from ade.tasks.identifiers import is_run, is_task_id, owner_of
from ade.tasks.lifecycle import Status
from ade.tasks.model import Definition, Task
from ade.tasks.options import NewTask, NewTasks, TaskOptions
from ade.tasks.read_access import ReadScope

_MOST_PLANS = 1_000
_CENTURY_MS = 100 * 365 * 86_400_000


@operation("POST /tasks", permission=Permission.ENQUEUE, tag=ETagUse.ANSWERED, waits=True)
async def create_task(services: Services, request: RequestContext, body: NewTask) -> Task:
    """Enqueue a task, or write a draft of one. The idempotency key is the one in the body, else that of the request, so
    that a repeat creates no second task."""
    [task] = await _stored(services, await _made(services, request, [body]), [body])
    if request.wait_s > 0:
        with suppress(WaitTimeout):
            return await services.watch().wait(task.id, request.wait_s)
    return task


@operation("POST /tasks/bulk", permission=Permission.ENQUEUE)
async def create_tasks(services: Services, request: RequestContext, body: NewTasks) -> CreatedTasks:
    """Enqueue many tasks, all or none. The response keeps their order. An error names the position of the task."""
    made = await _made(services, request, body.tasks, is_batch=True)
    stored, own = await _stored(services, made, body.tasks), {task.id for task in made}
    return CreatedTasks(items=stored, earlier=[task.id for task in stored if task.id not in own])


async def _made(
    services: Services, request: RequestContext, forms: Sequence[NewTask], *, is_batch: bool = False
) -> list[Task]:
    """Build and check the tasks without storing them."""
    wanted = {form.name for form in forms if not form.allow_unknown}
    now, definitions = services.stores.clock.now(), await services.names(wanted)
    parents = await _parents(services, request, forms)
    calls = [_call(services, request, form, index, definitions, parents, is_batch) for index, form in enumerate(forms)]
    tasks = make_tasks(calls, now=now)
    for task in tasks:
        _check_near(task, now)
    if is_batch:
        tasks = linked(tasks, [(getattr(form, "ref", None), form.after or ()) for form in forms], now=now)
    if (scope := scope_of(request.caller)) is not None:
        await _check_dependencies(services, scope, tasks)
    return [
        structs.replace(task, status=Status.DRAFT) if form.draft else task
        for task, form in zip(tasks, forms, strict=True)
    ]


async def _check_dependencies(services: Services, scope: ReadScope, tasks: Sequence[Task]) -> None:
    """Raise UnknownDependency if a limited account names a task that it does not read, as if that did not exist."""
    named = {each for task in tasks for each in task.depends_on} - {task.id for task in tasks}
    for task_id in sorted(named - await readable_ids(services, scope, named)):
        raise unknown_dependency(task_id)


def _check_near(task: Task, now: int) -> None:
    """Reject times more than a century away: they are usually a unit error, such as seconds for milliseconds."""
    for name, moment in (("its time to run", task.run_after), ("its deadline", task.deadline or 0)):
        if moment > now + _CENTURY_MS:
            raise InvalidTask(f"{name} is more than a hundred years from now; check the value")


async def _parents(services: Services, request: RequestContext, forms: Sequence[NewTask]) -> Mapping[str, Task]:
    """Return the named parents. Raises InvalidTask unless the caller has access to all of them."""
    if request.caller is None or all(form.parent is None for form in forms):
        return {}

    return await parents_of(services, request, forms)


async def _stored(services: Services, tasks: Sequence[Task], forms: Sequence[NewTask]) -> list[Task]:
    """Store all or none, and return the requested tasks in their order."""
    now = services.stores.clock.now()
    notifications = [each for task, form in zip(tasks, forms, strict=True) for each in _notification(task, form, now)]
    stored = await services.keep([*tasks, *notifications])
    return stored[: len(tasks)]


def _call(
    services: Services,
    request: RequestContext,
    form: NewTask,
    index: int,
    definitions: Mapping[str, Definition],
    parents: Mapping[str, Task],
    is_batch: bool,
) -> Invocation[Any]:
    options: TaskOptions = form.options()  # type: ignore[assignment] # its fields are named after the options
    if is_batch:
        options.pop("after", None)  # tasks of a batch can refer to each other before they have IDs
    parent = parents.get(form.parent or "")
    if parent is not None and parent.author_id is not None and is_run_by(request, parent, form.run):
        options["author"] = parent.author_id  # the worker's account only runs what others have written
        if parent.author_name is not None:
            options["author_name"] = parent.author_name
    elif request.author is not None:
        options["author"] = request.author
        if request.caller is not None and request.caller.user.display_name:
            options["author_name"] = request.caller.user.display_name
    if request.trace is not None:
        options.setdefault("trace", request.trace)
    if request.key is not None and "key" not in options:
        options["key"] = request.key if index == 0 else f"{request.key}:{index}"
    elif form.key is not None and request.caller is not None:
        options["key"] = key_for(request, form.key, parent, form.run)
    try:
        definition, args = checked_arguments(definitions, form.name, form.args, allow_unknown=form.allow_unknown)
        return Invocation(_plan(services, definition, options), args)
    except AdeError as error:
        raise _placed(error, index) if is_batch else error from None


def _plan(services: Services, definition: Definition, options: TaskOptions) -> TaskPlan:
    """Return a plan, from a cache if the task has no options: its checks then run once per name and author."""
    if options.keys() - {"author", "author_name"}:
        return make_plan(template_of(definition, services.defaults), options)
    place = definition.name, options.get("author"), options.get("author_name")
    known, plan = services.plans.get(place, (None, None))
    if plan is None or known is not definition:
        plan = make_plan(template_of(definition, services.defaults), options)
        if len(services.plans) >= _MOST_PLANS:
            services.plans.clear()
        services.plans[place] = definition, plan
    return plan


def _placed(error: AdeError, index: int) -> AdeError:
    """Return the same error with the position of the task in the batch."""
    better = copy.copy(error)
    better.args = (f"tasks[{index}]: {error.detail}; nothing was stored",)
    return better


def _notification(task: Task, form: NewTask, now: int) -> list[Task]:
    """Return the task that notifies the parent conversation when an agent run ends, if there is one."""
    inbox_id = form.args.get("parent_conversation")
    if form.draft or not is_run(form.name) or not isinstance(inbox_id, str) or form.args.get("silent"):
        return []
    from ade.agents.notifications import notify_task

    return [admit(notify_task(task, inbox_id), now=now)]


# Access control for parents and idempotency keys: a caller cannot use those of other accounts.


async def parents_of(services: Services, request: RequestContext, forms: Sequence[NewTask]) -> dict[str, Task]:
    """Return the tasks that the new ones name as their parents.

    Over HTTP, a parent must belong to the caller, or the request must come from its run on one of the caller's workers,
    unless the caller has the `operate` permission. Any other parent is treated as if it did not exist. Raises
    InvalidTask.
    """
    runs = {form.parent: form.run for form in forms if form.parent is not None}
    ids = [each for each in runs if is_task_id(each)]
    found = {task.id: task for task in await services.stores.tasks.get(ids) if task is not None}
    for task_id in runs:
        if task_id not in found:
            raise _unknown(task_id)
    if request.caller is None or Permission.OPERATE in request.caller.permissions:
        return found
    others = {task.author_id: task.id for task in found.values() if not is_run_by(request, task, runs[task.id])}
    for author, task_id in others.items():
        await check_own(services, request, author, _unknown(task_id))
    return found


def is_run_by(request: RequestContext, task: Task, run_id: str | None) -> bool:
    """Whether the request comes from this run of the task, on one of the caller's workers."""
    is_here = task.status is Status.RUNNING and owner_of(task.worker_id or "") == account_of(request)
    return is_here and run_id is not None and run_id == task.run_id


def key_for(request: RequestContext, key: str, parent: Task | None, run_id: str | None) -> str:
    """Return the idempotency key as it is stored.

    Keys are unique per task name and queue. The keys of accounts without the `operate` permission get a prefix of
    their own, so that no account can use up the keys of another. The children of a run are an exception: the next
    run of the task, on any worker, must find them by the same key, unless the key has a prefix that ADE reserves.
    """
    caller = request.caller
    if caller is None or Permission.OPERATE in caller.permissions:
        return key
    if parent is not None and is_run_by(request, parent, run_id) and not key.startswith(OF_OTHERS):
        return key
    return own_task_key(caller.user.id, key)


def _unknown(task_id: str) -> InvalidTask:
    return InvalidTask(f"the parent {task_id[:60]!r} does not exist, or is not your task; nothing was stored")

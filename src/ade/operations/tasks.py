"""Tasks are made: one, or many that may wait for each other."""

import copy
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs

from ade.core.agent_runs.names import is_run
from ade.core.errors import AdeError, InvalidTask, WaitTimeout
from ade.core.lifecycle import Status
from ade.core.records import Definition, Task
from ade.core.task import admit
from ade.core.web.batches import CreatedTasks, linked
from ade.core.web.forms.tasks import NewTask, NewTasks
from ade.operations.kit import Asked, Office
from ade.queue.names import checked_arguments
from ade.queue.options import Options, make_plan
from ade.queue.plans import Invocation, Plan, make_tasks, template_of

_MOST_PLANS = 1_000
_CENTURY_MS = 100 * 365 * 86_400_000


async def create_task(office: Office, asked: Asked, body: NewTask) -> Task:
    """A task that asks for an idempotency key has its own; else that of the request, so that no repeat makes two."""
    [task] = await _stored(office, await _made(office, asked, [body]), [body])
    if asked.wait_s > 0:
        with suppress(WaitTimeout):
            return await office.watch().wait(task.id, asked.wait_s)
    return task


async def create_tasks(office: Office, asked: Asked, body: NewTasks) -> CreatedTasks:
    """All or none; the answer has them in their order. What is wrong is told with the place of the task."""
    made = await _made(office, asked, body.tasks, is_batch=True)
    stored, own = await _stored(office, made, body.tasks), {task.id for task in made}
    return CreatedTasks(items=stored, earlier=[task.id for task in stored if task.id not in own])


async def _made(office: Office, asked: Asked, forms: Sequence[NewTask], *, is_batch: bool = False) -> list[Task]:
    """Checked, and not yet stored."""
    wanted = {form.name for form in forms if not form.allow_unknown}
    now, definitions = office.stores.clock.now(), await office.names(wanted)
    parents = await _parents(office, asked, forms)
    calls = [_call(office, asked, form, index, definitions, parents, is_batch) for index, form in enumerate(forms)]
    tasks = make_tasks(calls, now=now)
    for task in tasks:
        _check_near(task, now)
    if is_batch:
        tasks = linked(tasks, [(getattr(form, "ref", None), form.after or ()) for form in forms], now=now)
    return [
        structs.replace(task, status=Status.DRAFT) if form.draft else task
        for task, form in zip(tasks, forms, strict=True)
    ]


def _check_near(task: Task, now: int) -> None:
    """A time in a hundred years is a mistake, such as seconds that were given as milliseconds."""
    for name, moment in (("its time to run", task.run_after), ("its deadline", task.deadline or 0)):
        if moment > now + _CENTURY_MS:
            raise InvalidTask(f"{name} is more than a hundred years from now; check what it was made from")


async def _parents(office: Office, asked: Asked, forms: Sequence[NewTask]) -> Mapping[str, Task]:
    """Those that are named, which is seldom. Raises InvalidTask unless all are the caller's to name."""
    if asked.caller is None or all(form.parent is None for form in forms):
        return {}
    from ade.operations.new_tasks import parents_of

    return await parents_of(office, asked, forms)


async def _stored(office: Office, tasks: Sequence[Task], forms: Sequence[NewTask]) -> list[Task]:
    """All or none; the answer has those that were asked for, in their order."""
    now = office.stores.clock.now()
    told = [each for task, form in zip(tasks, forms, strict=True) for each in _notification(task, form, now)]
    stored = await office.keep([*tasks, *told])
    return stored[: len(tasks)]


def _call(
    office: Office,
    asked: Asked,
    form: NewTask,
    index: int,
    definitions: Mapping[str, Definition],
    parents: Mapping[str, Task],
    is_batch: bool,
) -> Invocation[Any]:
    options: Options = form.options()  # type: ignore[assignment] # its fields are named after the options
    if is_batch:
        options.pop("after", None)  # they may name each other, and have no ids yet
    if asked.author is not None:
        options["author"] = asked.author
    if asked.trace is not None:
        options.setdefault("trace", asked.trace)
    if asked.key is not None and "key" not in options:
        options["key"] = asked.key if index == 0 else f"{asked.key}:{index}"
    elif form.key is not None and asked.caller is not None:
        from ade.operations.new_tasks import key_for

        options["key"] = key_for(asked, form.key, parents.get(form.parent or ""))
    try:
        definition, args = checked_arguments(definitions, form.name, form.args, allow_unknown=form.allow_unknown)
        return Invocation(_plan(office, definition, options), args)
    except AdeError as error:
        raise _placed(error, index) if is_batch else error from None


def _plan(office: Office, definition: Definition, options: Options) -> Plan:
    """Most tasks say nothing but their name; what holds for all of an author's is checked once for a while."""
    if options.keys() - {"author"}:
        return make_plan(template_of(definition, office.defaults), options)
    place = definition.name, options.get("author")
    known, plan = office.plans.get(place, (None, None))
    if plan is None or known is not definition:
        plan = make_plan(template_of(definition, office.defaults), options)
        if len(office.plans) >= _MOST_PLANS:
            office.plans.clear()
        office.plans[place] = definition, plan
    return plan


def _placed(error: AdeError, index: int) -> AdeError:
    """The same error with where it is."""
    better = copy.copy(error)
    better.args = (f"tasks[{index}]: {error.detail}; nothing was stored",)
    return better


def _notification(task: Task, form: NewTask, now: int) -> list[Task]:
    """What tells the conversation that an agent's run is for of its end."""
    inbox_id = form.args.get("parent_conversation")
    if form.draft or not is_run(form.name) or not isinstance(inbox_id, str) or form.args.get("silent"):
        return []
    from ade.agents.notifying import notify_task

    return [admit(notify_task(task, inbox_id), now=now)]

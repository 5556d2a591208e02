"""Masks over secret payloads in the answers of a server, for callers without the permission to read them.

A field is a payload by its name, in any record of any answer, so that no new record can be forgotten.
"""

import time
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from ade.accounts.model import Caller, Permission
from ade.approvals.model import FieldChange
from ade.errors import AdeError, InvalidTask
from ade.server.context import Services, may_be_masked
from ade.tasks.identifiers import is_task_id
from ade.tasks.model import Schedule, Task
from ade.tasks.payloads import beginning_of, is_reference
from ade.tasks.read_access import MASKED, MaskRules, PayloadMask, ReadScope, has_mask, has_secrets

T = TypeVar("T")
_CLEAR_S = 1.0
Schemas = Mapping[str, Mapping[str, Any]]  # of arguments, by the name of the task
PAYLOADS = frozenset({
    *("args", "progress", "preview", "result", "error", "errors", "reason", "risk"),  # of tasks
    *("about", "signed", "before", "after", "end_reason"),  # of approvals
    *("answer", "arguments", "body", "content", "description", "detail", "excerpt", "memory", "message"),
    *("facts", "pattern", "payload", "prompt", "purpose", "said", "sentence", "summary", "text"),
})  # fmt: skip


async def masked_for(services: Services, caller: Caller | None, answer: T) -> T:
    """Return an answer with masks over secret payloads, unless the caller has the permission to read them.

    Payloads of tasks that the caller wrote or ran are not masked.
    """
    if caller is None or not may_be_masked(services, caller):
        return answer
    rules, schemas = await _secrets(services)
    if not rules and not schemas:
        services.masks["clear_until"] = time.monotonic() + _CLEAR_S
        return answer
    return await AnswerMask(services, caller, rules, schemas).over(answer)


async def is_masked_for(services: Services, caller: Caller | None) -> bool:
    """Whether something could be masked for this caller."""
    if caller is None or Permission.READ_PAYLOADS in caller.permissions:
        return False
    return any(await _secrets(services))


async def refuse_masks(services: Services, caller: Caller | None, args: object) -> None:
    """Raise InvalidTask if new arguments contain a mask: they would replace the value that the caller does not see."""
    if has_mask(args) and await is_masked_for(services, caller):
        raise InvalidTask(
            f"the arguments contain {MASKED}, which stands for a value that you do not see; ask the author, or someone"
            " with the permission read_payloads, to change them. Nothing was stored."
        )


async def _secrets(services: Services) -> tuple[MaskRules, Schemas]:
    """Return the rules of the settings, and the schemas with secrets, at most a second old."""
    definitions = await services.names(())
    if services.masks.get("of") is not definitions:
        http = services.settings.http
        schemas = {name: each.schema for name, each in definitions.items() if has_secrets(each.schema)}
        services.masks["secrets"] = MaskRules(http.masked_fields, http.masked_patterns), schemas
        services.masks["of"] = definitions
    found: tuple[MaskRules, Schemas] = services.masks["secrets"]
    return found


class AnswerMask:
    """Masks one answer. The tasks that it is about are read first: their secret arguments are masked everywhere."""

    def __init__(self, services: Services, caller: Caller, rules: MaskRules, schemas: Schemas) -> None:
        self._services = services
        self._own = ReadScope(account=caller.user.id, works=True)
        self._rules = rules
        self._schemas = schemas
        self._masks: dict[str, PayloadMask | None] = {}  # by the ID of the task; None: it is shown as it is

    async def over(self, answer: T) -> T:
        """Return the answer with masks."""
        named: dict[str, Task | None] = {}
        _note_tasks(answer, named)
        missing = [task_id for task_id, task in named.items() if task is None]
        if missing:
            named |= zip(missing, await self._services.stores.tasks.get(missing), strict=True)
        tasks = [task for task in named.values() if task is not None]
        for task in tasks:
            self._masks[task.id] = await self._of_task(task, loads=len(tasks) == 1)
        masked: T = self._value(answer, PayloadMask(self._rules))
        return masked

    async def _of_task(self, task: Task, *, loads: bool) -> PayloadMask | None:
        """Return the mask of a task. Large arguments are loaded for one task alone: for a list, that takes too long."""
        if self._own.is_own(task):
            return None
        schema = self._schemas.get(task.name)
        try:
            args = None if is_reference(task.args) and not loads else await self._services.payloads.load(task.args)
            return PayloadMask(self._rules, schema, msgspec.json.decode(args or b""))
        except (AdeError, msgspec.MsgspecError, RecursionError):
            return PayloadMask(self._rules, schema, hides_all=True)

    def _value(self, value: Any, usual: PayloadMask) -> Any:
        if isinstance(value, Struct):
            task_id = _task_id(value)
            mask: PayloadMask | None = usual if task_id is None else self._masks.get(task_id, usual)
            if isinstance(value, Schedule):
                mask = PayloadMask(self._rules, self._schemas.get(value.task_name))
            return value if mask is None else self._record(value, mask)
        if type(value) in (list, tuple):
            return type(value)(self._value(each, usual) for each in value)
        return value

    def _record(self, record: Struct, mask: PayloadMask) -> Struct:
        changed: dict[str, Any] = {}
        for name in record.__struct_fields__:
            value = getattr(record, name)
            if value is None:
                continue
            if name == "arguments" and hasattr(record, "task_id"):  # the beginning of the arguments, on one line
                line = value if mask.args is None else beginning_of(Raw(msgspec.json.encode(mask.args)))
                changed[name] = mask.value(line)
            elif isinstance(record, FieldChange) and name in ("before", "after") and record.path.startswith("args."):
                changed[name] = mask.at(record.path.removeprefix("args."), value)
            elif name == "args" and isinstance(value, Raw):
                changed[name] = value if is_reference(value) else mask.raw_arguments(value)
            elif name in PAYLOADS:
                changed[name] = mask.value(value)
            elif name == "masked":
                changed[name] = list(mask.paths)
            elif isinstance(value, Struct | list | tuple):
                changed[name] = self._value(value, mask)
        return structs.replace(record, **changed) if changed else record


def _note_tasks(value: Any, found: dict[str, Task | None]) -> None:
    """Collect the tasks that an answer is about, by ID; None for those that it only names."""
    if isinstance(value, Struct):
        if isinstance(value, Task):
            found[value.id] = value
        elif (task_id := _task_id(value)) is not None:
            found.setdefault(task_id, None)
        for name in value.__struct_fields__:
            _note_tasks(getattr(value, name), found)
    elif isinstance(value, list | tuple):
        for each in value:
            _note_tasks(each, found)


def _task_id(record: Struct) -> str | None:
    task_id = getattr(record, "task_id" if hasattr(record, "task_id") else "id", None)
    return task_id if isinstance(task_id, str) and is_task_id(task_id) else None

"""What workers behind HTTP say of their names: it holds for everybody who enqueues one, so it is checked first."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from ade.core.admission import check_task
from ade.core.approvals.refusals import NotPermitted
from ade.core.capabilities import capabilities_of
from ade.core.errors import InvalidTask
from ade.core.records import Definition
from ade.core.web.forms.workers import NewDefinition
from ade.core.web.http_workers import owner_of
from ade.governance.web_names import note_names, reserve_names
from ade.operations.kit import Asked, Office
from ade.operations.remote_workers import account_of
from ade.queue.options import parse_rate
from ade.queue.plans import template_of

_LARGEST_SCHEMA = 32_000  # bytes of JSON
_LARGEST_TOGETHER = 256_000  # of all schemas of one worker


async def checked(office: Office, asked: Asked, forms: Sequence[NewDefinition]) -> list[Definition]:
    """As they are to be registered.

    Over HTTP a name that a live worker of somebody else runs is taken only as that one has defined it: another queue,
    schema or rate would change the tasks of others. Names of workers that are gone are free. Raises InvalidTask and
    NotPermitted.
    """
    definitions = [_definition(office, form) for form in forms]
    sizes = {each.name: _size(each) for each in definitions}
    if sum(sizes.values()) > _LARGEST_TOGETHER:
        raise InvalidTask(
            f"the schemas of all definitions have {sum(sizes.values()):,} bytes, and those of one worker may have"
            f" {_LARGEST_TOGETHER:,}; make them smaller, or register more than one worker"
        )
    known = {each.name: each for each in await office.stores.workers.definitions()}
    _check_not_governed(known, definitions)
    changed = {each.name: each for each in definitions if known.get(each.name) != each}
    if asked.caller is not None and changed:
        await _check_not_anothers(office, asked, changed)  # before: who may not define a name keeps it from nobody
        await reserve_names(office.stores, account_of(asked), changed.values())
        await _check_not_anothers(office, asked, changed)  # and after: another one may have been registered meanwhile
        await note_names(office.stores, account_of(asked), {name: sizes[name] for name in changed})
    return definitions


def _definition(office: Office, form: NewDefinition) -> Definition:
    """Checked as the tasks will be that are made by it, so that no step of ADE's own is among them."""
    count, period_ms = (None, None) if form.rate is None else parse_rate(form.rate)
    _check_schema(form)
    definition = Definition(
        name=form.name,
        queue=form.queue,
        concurrency=form.concurrency,
        concurrency_per_key=form.concurrency_per_key,
        rate_count=count,
        rate_period_ms=period_ms,
        schema=form.schema,
        priority=form.priority,
        timeout_ms=None if form.timeout is None else round(form.timeout * 1000),
        max_attempts=form.max_attempts,
        backoff=form.backoff,
        result_ttl_ms=None if form.result_ttl is None else round(form.result_ttl * 1000),
        needs=capabilities_of(form.needs, f"needs of {form.name[:120]}", InvalidTask),
    )
    check_task(template_of(definition, office.defaults))
    return definition


def _size(definition: Definition) -> int:
    return 0 if definition.schema is None else len(msgspec.json.encode(definition.schema))


def _check_schema(form: NewDefinition) -> None:
    """Whoever enqueues is judged by it, so it must at least be one."""
    schema = form.schema
    if schema is None:
        return
    named = f"the schema of {form.name[:120]}"
    if len(msgspec.json.encode(schema)) > _LARGEST_SCHEMA:
        raise InvalidTask(f"{named} has more than {_LARGEST_SCHEMA:,} bytes")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        raise InvalidTask(f"`properties` of {named} is an object of objects")
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise InvalidTask(f"`required` of {named} is a list of names")


def _check_not_governed(known: Mapping[str, Definition], definitions: Sequence[Definition]) -> None:
    """What people must approve by its preview stays so: another definition in its place would end that."""
    for definition in definitions:
        before = known.get(definition.name)
        if before is not None and (before.has_preview or before.has_rollback):
            raise InvalidTask(f"{definition.name} has a preview or a rollback, so that ADE's own workers must run it")


async def _check_not_anothers(office: Office, asked: Asked, names: Collection[str]) -> None:
    account, steady = account_of(asked), office.stores.clock.steady()
    for worker in await office.stores.workers.list_workers():
        if worker.heartbeat_until <= steady or owner_of(worker.id) == account:
            continue
        taken = next((name for name in worker.names if name in names), None)
        if taken is not None:
            raise NotPermitted(
                f"{taken} is defined otherwise by {worker.id}, which is alive and not yours; register it with the same"
                " definition, under another name, or when that worker is gone"
            )

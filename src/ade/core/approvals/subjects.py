"""What exactly people approve: everything of a task that matters, written down in one way, and its digest."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ade.core.approvals.canonical import digest_of
from ade.core.approvals.delegations import Subject
from ade.core.approvals.policies import Policy
from ade.core.approvals.records import Gate, Review
from ade.core.approvals.refusals import InvalidSubject
from ade.core.approvals.risk import RiskLevel
from ade.core.locks.wishes import Wish
from ade.core.records import Task


class Preview(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task would do, found out without doing it. `versions` tells in which state each resource was seen."""

    changes: list[Any] = []
    warnings: list[str] = []
    errors: list[str] = []
    versions: dict[str, str] = {}


_preview = msgspec.json.Decoder(Preview).decode


def read_preview(raw: Raw) -> Preview:
    """Raises InvalidSubject for what no preview looks like."""
    try:
        return _preview(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # not UTF-8, or too deep
        raise InvalidSubject(
            f"a preview must return ade.Preview(changes=[...], warnings=[...], errors=[...], versions={{...}}): {error}"
        ) from None


def resources_of(task: Task) -> tuple[str, ...]:
    """All that the task names: what it changes, and what it locks."""
    return tuple(dict.fromkeys((*task.resources, *(wish.resource for wish in task.locks))))


def subject_of(task: Task, level: RiskLevel) -> Subject:
    kinds = frozenset(resource.partition(":")[0] for resource in resources_of(task))
    return Subject(name=task.name, tags=frozenset(task.tags), resource_types=kinds, level=level, task_id=task.id)


def digest_for(task: Task, policy: Policy, number: int, step: str = "", about: object = None) -> str:
    """Of the task as it would run under this policy; for a gate in the middle of a run, of that step too.

    The number of the gate is part of it, so that no answer at one gate can ever be taken for one at another. Raises
    InvalidSubject.
    """
    review = task.review or Review()
    written: dict[str, object] = {
        "gate": number,
        "name": task.name,
        "args": _plain(task.args),
        "description": task.description,
        "tags": sorted(task.tags),
        "queue": task.queue,
        "resources": list(task.resources),
        "locks": [_wish(wish) for wish in task.locks],
        "rollback": task.rollback,
        "timeout_ms": task.timeout_ms,
        "max_attempts": task.max_attempts,
        "deadline": task.deadline,
        "start": [str(review.start), review.not_before, review.not_after],
        "preview": None if task.preview is None else _plain(task.preview),
        "policy": {"id": policy.id, "version": policy.version},
    }
    if task.needs:  # most ask for none, and were approved before any could
        written["needs"] = list(task.needs)
    if step:
        written["step"], written["about"] = step, about
    return digest_of(written)


def digest_at(task: Task, gate: Gate) -> str:
    """What the digest of the task is now, at a gate that was opened earlier."""
    return digest_for(task, gate.policy, gate.number, gate.step, gate.about)


def _plain(raw: Raw) -> object:
    try:
        plain: object = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidSubject(f"the task holds text that is no JSON: {error}") from None
    return plain


def _wish(wish: Wish) -> Mapping[str, object]:
    return {"resource": wish.resource, "mode": str(wish.mode)}

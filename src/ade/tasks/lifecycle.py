"""The task state machine: every status, every verb, and the transitions between them.

A status changes only through `step`. Final statuses are computed from the table, never listed.
"""

from collections.abc import Mapping
from enum import StrEnum, auto

from msgspec import Struct

from ade.errors import IllegalTransition


class Status(StrEnum):
    """The status of a task."""

    __hash__ = str.__hash__  # that of Enum is a Python function, which every set or dict lookup would call

    DRAFT = auto()  # being written; nothing runs
    SUBMITTED = auto()  # frozen; being validated, previewed, scored
    REVIEWING = auto()  # waits for reviewers; holds no lease
    APPROVED = auto()  # quorum met; waits to be started
    PENDING = auto()  # can be claimed once it is due and its dependencies are met
    RUNNING = auto()  # one worker holds the lease
    STALLED = auto()  # its lease expired; any worker can claim it
    COMPLETED = auto()
    FAILED = auto()  # final unless replayed; listed as a dead letter
    REJECTED = auto()
    CANCELLED = auto()


class Verb(StrEnum):
    """An action on a task; RULES defines where each is allowed."""

    __hash__ = str.__hash__  # as in Status

    CREATE = auto()
    EDIT = auto()
    SUBMIT = auto()
    ASSESS = auto()
    REVIEW = auto()
    APPROVE = auto()
    REJECT = auto()
    REQUEST_CHANGES = auto()
    RESPOND = auto()
    REOPEN = auto()
    REVOKE = auto()
    BREAK_GLASS = auto()
    EXPIRE = auto()
    START = auto()
    CLAIM = auto()
    SUCCEED = auto()
    RETRY = auto()
    FAIL = auto()
    HOLD = auto()
    STALL = auto()
    RELEASE = auto()
    DEFER = auto()
    RECALL = auto()
    RESCHEDULE = auto()
    CANCEL = auto()
    REPLAY = auto()
    DISCARD = auto()


class TransitionRule(Struct, frozen=True):
    """The statuses in which a verb is allowed, and its targets. The first target is the default.

    A verb without targets leaves the status unchanged.
    """

    sources: frozenset[Status]
    targets: tuple[Status, ...]


def _rule(sources: tuple[Status, ...], *targets: Status) -> TransitionRule:
    return TransitionRule(frozenset(sources), targets)


_S = Status
_LEAVABLE = (_S.DRAFT, _S.SUBMITTED, _S.REVIEWING, _S.APPROVED, _S.PENDING, _S.RUNNING, _S.STALLED)

_WAITING = (_S.SUBMITTED, _S.REVIEWING, _S.APPROVED, _S.PENDING)  # a broken dependency can end it here

_RESTING = tuple(status for status in Status if status not in (_S.RUNNING, _S.STALLED))

BIRTHS: tuple[Status, ...] = (_S.PENDING, _S.DRAFT, _S.SUBMITTED, _S.REVIEWING)

RULES: Mapping[Verb, TransitionRule] = {
    Verb.CREATE: _rule((), *BIRTHS),
    Verb.EDIT: _rule((_S.DRAFT,), _S.DRAFT),
    Verb.SUBMIT: _rule((_S.DRAFT,), _S.SUBMITTED),
    Verb.ASSESS: _rule((_S.SUBMITTED,), _S.REVIEWING, _S.APPROVED, _S.PENDING, _S.DRAFT),
    Verb.REVIEW: _rule(_RESTING),  # a comment, or a vote that does not decide the gate
    Verb.APPROVE: _rule((_S.REVIEWING,), _S.APPROVED, _S.PENDING),
    Verb.REJECT: _rule((_S.REVIEWING, _S.DRAFT), _S.REJECTED),  # a draft: after changes were requested
    Verb.REQUEST_CHANGES: _rule((_S.REVIEWING,), _S.DRAFT),
    Verb.RESPOND: _rule((_S.REVIEWING, _S.DRAFT), _S.PENDING),  # a held run continues without the step
    Verb.REOPEN: _rule((_S.DRAFT,), _S.REVIEWING, _S.APPROVED, _S.PENDING),
    Verb.REVOKE: _rule((_S.APPROVED, _S.PENDING), _S.REVIEWING),
    Verb.BREAK_GLASS: _rule((_S.REVIEWING,), _S.PENDING),
    Verb.EXPIRE: _rule((_S.REVIEWING, _S.APPROVED), _S.REJECTED),
    Verb.START: _rule((_S.APPROVED,), _S.PENDING),
    Verb.CLAIM: _rule((_S.PENDING, _S.STALLED), _S.RUNNING),
    Verb.SUCCEED: _rule((_S.RUNNING,), _S.COMPLETED),
    Verb.RETRY: _rule((_S.RUNNING,), _S.PENDING),
    Verb.FAIL: _rule((_S.RUNNING, _S.STALLED, *_WAITING), _S.FAILED),
    Verb.HOLD: _rule((_S.RUNNING,), _S.REVIEWING, _S.SUBMITTED),
    Verb.STALL: _rule((_S.RUNNING,), _S.STALLED),
    Verb.RELEASE: _rule((_S.RUNNING,), _S.PENDING),
    Verb.DEFER: _rule((_S.RUNNING,), _S.PENDING),
    Verb.RECALL: _rule((_S.PENDING,), _S.PENDING),
    Verb.RESCHEDULE: _rule((_S.PENDING,), _S.PENDING),  # another start time or priority
    Verb.CANCEL: _rule(_LEAVABLE, _S.CANCELLED),
    Verb.REPLAY: _rule((_S.FAILED,), _S.PENDING, _S.SUBMITTED),  # submitted: it needs a new approval first
    Verb.DISCARD: _rule((_S.FAILED,), _S.FAILED),
}

_REPAIRS = frozenset({Verb.REPLAY, Verb.DISCARD, Verb.REVIEW})  # verbs allowed in final statuses

FINAL: frozenset[Status] = frozenset(
    status
    for status in Status
    if not any(status in rule.sources for verb, rule in RULES.items() if verb not in _REPAIRS)
)
CLAIMABLE: frozenset[Status] = RULES[Verb.CLAIM].sources


def verbs_from(status: Status) -> tuple[Verb, ...]:
    """Return the verbs allowed in this status, in the order of the table."""
    return tuple(verb for verb, rule in RULES.items() if status in rule.sources)


def step(status: Status, verb: Verb, target: Status | None = None) -> Status:
    """Return the status that the verb leads to. Raises IllegalTransition, with the allowed verbs."""
    rule = RULES[verb]
    if status not in rule.sources:
        allowed = ", ".join(verbs_from(status)) or "nothing"
        raise IllegalTransition(f"cannot {verb} a task that is {status}; allowed from here: {allowed}")
    if not rule.targets:
        return status
    if target is None:
        return rule.targets[0]
    if target not in rule.targets:
        raise IllegalTransition(f"{verb} does not lead to {target}; it leads to {', '.join(rule.targets)}")
    return target

"""Why nothing may be taken now: what is going on in an agent, and which of that is told when it is more than one."""

from collections.abc import Collection
from enum import StrEnum, auto

from ade.core.inbox.notices import BlockedReason


class Condition(StrEnum):
    INTERRUPTING = auto()  # somebody cancels the turn
    APPROVALS_PENDING = auto()  # at least one
    RECOVERING_APPROVALS = auto()
    WAITING_ON_APPROVAL = auto()  # the turn itself says so
    OVERLAY_OPEN = auto()  # a selector or a question on the screen, or an answer to one on its way
    COMMAND_RUNNING = auto()
    STREAMING = auto()
    CALLING_API = auto()  # sending, waiting, retrying or reading
    EXECUTING_TOOL = auto()
    ABORTABLE = auto()  # a request is under way that can be aborted
    PROCESSING = auto()  # a turn is under way, and nothing more is known of it


Priority = tuple[tuple[Condition, BlockedReason], ...]  # the first that holds is told

TERMINAL: Priority = (
    (Condition.INTERRUPTING, BlockedReason.INTERRUPT_IN_PROGRESS),
    (Condition.APPROVALS_PENDING, BlockedReason.PENDING_APPROVALS),
    (Condition.OVERLAY_OPEN, BlockedReason.OVERLAY_OPEN),
    (Condition.COMMAND_RUNNING, BlockedReason.COMMAND_RUNNING),
    (Condition.STREAMING, BlockedReason.STREAMING),
    (Condition.EXECUTING_TOOL, BlockedReason.STREAMING),
    (Condition.ABORTABLE, BlockedReason.STREAMING),
)
LISTENER: Priority = (
    (Condition.INTERRUPTING, BlockedReason.INTERRUPT_IN_PROGRESS),
    (Condition.APPROVALS_PENDING, BlockedReason.PENDING_APPROVALS),
    (Condition.RECOVERING_APPROVALS, BlockedReason.RUNTIME_BUSY),
    (Condition.WAITING_ON_APPROVAL, BlockedReason.PENDING_APPROVALS),
    (Condition.COMMAND_RUNNING, BlockedReason.COMMAND_RUNNING),
    (Condition.CALLING_API, BlockedReason.STREAMING),
    (Condition.EXECUTING_TOOL, BlockedReason.STREAMING),
    (Condition.PROCESSING, BlockedReason.RUNTIME_BUSY),
)


def blocked_reason(conditions: Collection[Condition], priority: Priority) -> BlockedReason | None:
    """None when nothing of what is going on is in the way."""
    return next((reason for condition, reason in priority if condition in conditions), None)

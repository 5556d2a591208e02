"""ADE: a durable work queue for AI agents."""

TYPE_CHECKING = False  # as in `typing`, which is large: a worker's guardian does without it
if TYPE_CHECKING:
    from ade.app.ade import Ade as Ade
    from ade.app.handle import TaskHandle as TaskHandle
    from ade.app.locking import LockHandle as LockHandle
    from ade.client.client import Client as Client
    from ade.client.client import connect as connect
    from ade.core.approvals.refusals import ConflictOfInterest as ConflictOfInterest
    from ade.core.approvals.refusals import Denied as Denied
    from ade.core.approvals.refusals import DigestMismatch as DigestMismatch
    from ade.core.approvals.refusals import GateClosed as GateClosed
    from ade.core.approvals.refusals import NotEligible as NotEligible
    from ade.core.approvals.subjects import Preview as Preview
    from ade.core.control import RateLimited as RateLimited
    from ade.core.control import Retry as Retry
    from ade.core.control import RunHeld as RunHeld
    from ade.core.control import Unrecoverable as Unrecoverable
    from ade.core.errors import AdeError as AdeError
    from ade.core.errors import DeadlockVictim as DeadlockVictim
    from ade.core.errors import LockLost as LockLost
    from ade.core.errors import LockRateLimited as LockRateLimited
    from ade.core.errors import LockTimeout as LockTimeout
    from ade.core.errors import StaleToken as StaleToken
    from ade.core.errors import TaskCancelled as TaskCancelled
    from ade.core.errors import TaskFailed as TaskFailed
    from ade.core.errors import TooManyLocks as TooManyLocks
    from ade.core.errors import UpgradeDeadlock as UpgradeDeadlock
    from ade.core.lifecycle import Status as Status
    from ade.core.locks.wishes import read as read
    from ade.core.locks.wishes import write as write
    from ade.core.retry import Backoff as Backoff
    from ade.governance.locks.fences import Fence as Fence
    from ade.settings import Settings as Settings
    from ade.worker.context import Context as Context
    from ade.worker.context import SyncContext as SyncContext

# Where each name comes from; loaded when it is first asked for, so that `import ade` costs next to nothing.
_HOMES = {
    "Ade": "ade.app.ade",
    "AdeError": "ade.core.errors",
    "Backoff": "ade.core.retry",
    "Client": "ade.client.client",
    "Context": "ade.worker.context",
    "ConflictOfInterest": "ade.core.approvals.refusals",
    "Denied": "ade.core.approvals.refusals",
    "DigestMismatch": "ade.core.approvals.refusals",
    "GateClosed": "ade.core.approvals.refusals",
    "NotEligible": "ade.core.approvals.refusals",
    "RunHeld": "ade.core.control",
    "Preview": "ade.core.approvals.subjects",
    "DeadlockVictim": "ade.core.errors",
    "UpgradeDeadlock": "ade.core.errors",
    "TooManyLocks": "ade.core.errors",
    "LockRateLimited": "ade.core.errors",
    "Fence": "ade.governance.locks.fences",
    "LockHandle": "ade.app.locking",
    "LockLost": "ade.core.errors",
    "LockTimeout": "ade.core.errors",
    "RateLimited": "ade.core.control",
    "Retry": "ade.core.control",
    "Settings": "ade.settings",
    "StaleToken": "ade.core.errors",
    "Status": "ade.core.lifecycle",
    "SyncContext": "ade.worker.context",
    "TaskCancelled": "ade.core.errors",
    "TaskFailed": "ade.core.errors",
    "TaskHandle": "ade.app.handle",
    "Unrecoverable": "ade.core.control",
    "read": "ade.core.locks.wishes",
    "write": "ade.core.locks.wishes",
    "connect": "ade.client.client",
}

__all__ = [
    "Ade",
    "AdeError",
    "Backoff",
    "Client",
    "ConflictOfInterest",
    "Context",
    "DeadlockVictim",
    "Denied",
    "DigestMismatch",
    "Fence",
    "GateClosed",
    "LockHandle",
    "LockLost",
    "LockRateLimited",
    "LockTimeout",
    "NotEligible",
    "Preview",
    "RateLimited",
    "Retry",
    "RunHeld",
    "Settings",
    "StaleToken",
    "Status",
    "SyncContext",
    "TaskCancelled",
    "TaskFailed",
    "TaskHandle",
    "TooManyLocks",
    "Unrecoverable",
    "UpgradeDeadlock",
    "connect",
    "read",
    "write",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""ADE: a durable work queue for AI agents."""

VERSION = "0.1.0"

TYPE_CHECKING = False  # without importing `typing`, which is large: the guardian process of a worker does not need it
if TYPE_CHECKING:
    from ade.agents.conversations.memory_inbox import QueueRuntime as QueueRuntime
    from ade.agents.conversations.model import ItemKind as ItemKind
    from ade.agents.conversations.model import NewItem as NewItem
    from ade.app.ade import Ade as Ade
    from ade.app.functions import TaskHandle as TaskHandle
    from ade.app.lock import LockHandle as LockHandle
    from ade.approvals.digest import Preview as Preview
    from ade.approvals.errors import AuthorRequired as AuthorRequired
    from ade.approvals.errors import ConflictOfInterest as ConflictOfInterest
    from ade.approvals.errors import Denied as Denied
    from ade.approvals.errors import DigestMismatch as DigestMismatch
    from ade.approvals.errors import GateClosed as GateClosed
    from ade.approvals.errors import NotEligible as NotEligible
    from ade.approvals.errors import StepDenied as StepDenied
    from ade.client.client import Client as Client
    from ade.client.client import connect as connect
    from ade.composition.remote_worker import work_over_http as work_over_http
    from ade.errors import AdeError as AdeError
    from ade.errors import DeadlockVictim as DeadlockVictim
    from ade.errors import LockLost as LockLost
    from ade.errors import LockNotPermitted as LockNotPermitted
    from ade.errors import LockPlaceLost as LockPlaceLost
    from ade.errors import LockRateLimited as LockRateLimited
    from ade.errors import LockTimeout as LockTimeout
    from ade.errors import StaleToken as StaleToken
    from ade.errors import TaskCancelled as TaskCancelled
    from ade.errors import TaskFailed as TaskFailed
    from ade.errors import TooManyLocks as TooManyLocks
    from ade.errors import UpgradeDeadlock as UpgradeDeadlock
    from ade.events.feed_items import Gap as Gap
    from ade.failures import Backoff as Backoff
    from ade.locks.holder import Fence as Fence
    from ade.locks.model import read as read
    from ade.locks.model import write as write
    from ade.settings import Settings as Settings
    from ade.tasks.lifecycle import Status as Status
    from ade.tasks.model import Task as Task
    from ade.tasks.outcomes import HoldResponse as HoldResponse
    from ade.tasks.outcomes import RateLimited as RateLimited
    from ade.tasks.outcomes import Retry as Retry
    from ade.tasks.outcomes import RunHeld as RunHeld
    from ade.tasks.outcomes import Unrecoverable as Unrecoverable
    from ade.worker.context import Context as Context
    from ade.worker.context import SyncContext as SyncContext

# The module of each name, imported on first use, so that `import ade` is fast.
_HOMES = {
    "work_over_http": "ade.composition.remote_worker",
    "Task": "ade.tasks.model",
    "QueueRuntime": "ade.agents.conversations.memory_inbox",
    "NewItem": "ade.agents.conversations.model",
    "ItemKind": "ade.agents.conversations.model",
    "Gap": "ade.events.feed_items",
    "Ade": "ade.app.ade",
    "AdeError": "ade.errors",
    "Backoff": "ade.failures",
    "Client": "ade.client.client",
    "Context": "ade.worker.context",
    "ConflictOfInterest": "ade.approvals.errors",
    "AuthorRequired": "ade.approvals.errors",
    "Denied": "ade.approvals.errors",
    "DigestMismatch": "ade.approvals.errors",
    "GateClosed": "ade.approvals.errors",
    "NotEligible": "ade.approvals.errors",
    "StepDenied": "ade.approvals.errors",
    "HoldResponse": "ade.tasks.outcomes",
    "RunHeld": "ade.tasks.outcomes",
    "Preview": "ade.approvals.digest",
    "DeadlockVictim": "ade.errors",
    "UpgradeDeadlock": "ade.errors",
    "TooManyLocks": "ade.errors",
    "LockNotPermitted": "ade.errors",
    "LockPlaceLost": "ade.errors",
    "LockRateLimited": "ade.errors",
    "Fence": "ade.locks.holder",
    "LockHandle": "ade.app.lock",
    "LockLost": "ade.errors",
    "LockTimeout": "ade.errors",
    "RateLimited": "ade.tasks.outcomes",
    "Retry": "ade.tasks.outcomes",
    "Settings": "ade.settings",
    "StaleToken": "ade.errors",
    "Status": "ade.tasks.lifecycle",
    "SyncContext": "ade.worker.context",
    "TaskCancelled": "ade.errors",
    "TaskFailed": "ade.errors",
    "TaskHandle": "ade.app.functions",
    "Unrecoverable": "ade.tasks.outcomes",
    "read": "ade.locks.model",
    "write": "ade.locks.model",
    "connect": "ade.client.client",
}

__all__ = [
    "Ade",
    "AdeError",
    "AuthorRequired",
    "Backoff",
    "Client",
    "ConflictOfInterest",
    "Context",
    "DeadlockVictim",
    "Denied",
    "DigestMismatch",
    "Fence",
    "Gap",
    "GateClosed",
    "HoldResponse",
    "ItemKind",
    "LockHandle",
    "LockLost",
    "LockNotPermitted",
    "LockPlaceLost",
    "LockRateLimited",
    "LockTimeout",
    "NewItem",
    "NotEligible",
    "Preview",
    "QueueRuntime",
    "RateLimited",
    "Retry",
    "RunHeld",
    "Settings",
    "StaleToken",
    "Status",
    "StepDenied",
    "SyncContext",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskHandle",
    "TooManyLocks",
    "Unrecoverable",
    "UpgradeDeadlock",
    "connect",
    "read",
    "work_over_http",
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

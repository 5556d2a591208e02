"""How a command tells a script what happened: every exit code, what it means, and which errors lead to it."""

from collections.abc import Mapping
from enum import IntEnum

from ade.core import errors
from ade.core.accounts import errors as account_errors
from ade.core.approvals import refusals
from ade.core.errors import AdeError
from ade.core.fingerprint import UnknownFingerprint
from ade.core.inbox import errors as inbox_errors
from ade.core.web.raising import ServerProblem
from ade.core.webhooks import errors as webhook_errors
from ade.settings import SettingsError


class ExitCode(IntEnum):
    OK = 0
    PROBLEM = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    REFUSED = 5
    STORE = 6
    DENIED = 7
    INTERNAL = 70
    TIMED_OUT = 124
    INTERRUPTED = 130
    BROKEN_PIPE = 141


MEANS: Mapping[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.PROBLEM: "a problem was found: a task that was waited for did not complete, a duty of `sweep --once`"
    " failed, `doctor` or `audit verify` complains",
    ExitCode.USAGE: "the command, its options, the settings, the app or the task were not valid; nothing was stored",
    ExitCode.NOT_FOUND: "the task, approval, name, queue, schedule, agent, inbox, account, token, delegation, webhook"
    " or fingerprint does not exist",
    ExitCode.CONFLICT: "the record is in a state that does not allow this, or somebody else was faster",
    ExitCode.REFUSED: "refused for now: a queue, an inbox or the disk is full, or somebody asks too often; try again"
    " later",
    ExitCode.STORE: "the store or the server cannot be used: missing, damaged, not writable, of a newer version, out of"
    " reach",
    ExitCode.DENIED: "not allowed: who asks is not known or has not the permission, or a guard rule forbids it",
    ExitCode.INTERNAL: "a fault of ADE itself; `ADE_DEBUG=1` shows where",
    ExitCode.TIMED_OUT: "what was waited for did not happen in the time given",
    ExitCode.INTERRUPTED: "ended by Ctrl-C",
    ExitCode.BROKEN_PIPE: "the reader of the output went away",
}

_BY_ERROR: Mapping[type[AdeError], ExitCode] = {
    AdeError: ExitCode.PROBLEM,
    SettingsError: ExitCode.USAGE,
    account_errors.UnsafeBind: ExitCode.USAGE,
    errors.AddressInUse: ExitCode.CONFLICT,
    errors.NeedsStore: ExitCode.USAGE,
    errors.InvalidTask: ExitCode.USAGE,
    errors.InvalidArguments: ExitCode.USAGE,
    errors.InvalidSchedule: ExitCode.USAGE,
    errors.InvalidFilter: ExitCode.USAGE,
    errors.InvalidUrl: ExitCode.USAGE,
    errors.InvalidLock: ExitCode.USAGE,
    errors.InvalidAgent: ExitCode.USAGE,
    errors.InvalidProfile: ExitCode.USAGE,
    inbox_errors.InvalidInbox: ExitCode.USAGE,
    inbox_errors.InvalidInboxItem: ExitCode.USAGE,
    errors.ProgramNotStarted: ExitCode.USAGE,
    webhook_errors.InvalidWebhook: ExitCode.USAGE,
    refusals.InvalidPolicy: ExitCode.USAGE,
    refusals.InvalidRulebook: ExitCode.USAGE,
    refusals.InvalidSetting: ExitCode.USAGE,
    account_errors.InvalidDelegation: ExitCode.USAGE,
    refusals.InvalidSubject: ExitCode.USAGE,
    account_errors.InvalidAccount: ExitCode.USAGE,
    account_errors.InvalidToken: ExitCode.USAGE,
    account_errors.WeakPassword: ExitCode.USAGE,
    errors.DependencyCycle: ExitCode.USAGE,
    errors.PayloadTooLarge: ExitCode.USAGE,
    errors.UnknownTask: ExitCode.NOT_FOUND,
    errors.UnknownName: ExitCode.NOT_FOUND,
    errors.UnknownQueue: ExitCode.NOT_FOUND,
    errors.UnknownSchedule: ExitCode.NOT_FOUND,
    errors.UnknownAgent: ExitCode.NOT_FOUND,
    errors.UnknownWorker: ExitCode.NOT_FOUND,
    inbox_errors.UnknownInbox: ExitCode.NOT_FOUND,
    inbox_errors.UnknownInboxItem: ExitCode.NOT_FOUND,
    refusals.UnknownSetting: ExitCode.NOT_FOUND,
    errors.UnknownDependency: ExitCode.NOT_FOUND,
    UnknownFingerprint: ExitCode.NOT_FOUND,
    account_errors.UnknownAccount: ExitCode.NOT_FOUND,
    account_errors.UnknownToken: ExitCode.NOT_FOUND,
    account_errors.UnknownDelegation: ExitCode.NOT_FOUND,
    account_errors.UnknownSession: ExitCode.NOT_FOUND,
    refusals.UnknownRulebook: ExitCode.NOT_FOUND,
    webhook_errors.UnknownWebhook: ExitCode.NOT_FOUND,
    errors.IllegalTransition: ExitCode.CONFLICT,
    errors.StaleWrite: ExitCode.CONFLICT,
    errors.IdempotencyConflict: ExitCode.CONFLICT,
    errors.EffectInProgress: ExitCode.CONFLICT,
    errors.LockLost: ExitCode.CONFLICT,
    errors.UpgradeDeadlock: ExitCode.CONFLICT,
    errors.DeadlockVictim: ExitCode.CONFLICT,
    errors.StaleToken: ExitCode.CONFLICT,
    account_errors.AccountExists: ExitCode.CONFLICT,
    account_errors.LastAdmin: ExitCode.CONFLICT,
    inbox_errors.InboxBusy: ExitCode.CONFLICT,
    errors.QueueFull: ExitCode.REFUSED,
    inbox_errors.InboxFull: ExitCode.REFUSED,
    account_errors.TooManyRequests: ExitCode.REFUSED,
    account_errors.NotAuthenticated: ExitCode.DENIED,
    refusals.NotPermitted: ExitCode.DENIED,
    refusals.NotEligible: ExitCode.DENIED,
    refusals.ConflictOfInterest: ExitCode.DENIED,
    refusals.ReauthenticationNeeded: ExitCode.DENIED,
    refusals.Denied: ExitCode.DENIED,
    webhook_errors.AddressRefused: ExitCode.DENIED,
    webhook_errors.InvalidSignature: ExitCode.DENIED,
    refusals.UnknownApproval: ExitCode.NOT_FOUND,
    refusals.NoGate: ExitCode.CONFLICT,
    refusals.GateClosed: ExitCode.CONFLICT,
    refusals.DigestMismatch: ExitCode.CONFLICT,
    refusals.ApprovalNotGood: ExitCode.CONFLICT,
    errors.DiskFull: ExitCode.REFUSED,
    errors.TooManyLocks: ExitCode.REFUSED,
    errors.LockRateLimited: ExitCode.REFUSED,
    errors.StoreError: ExitCode.STORE,
    errors.ServerUnreachable: ExitCode.STORE,
    errors.WaitTimeout: ExitCode.TIMED_OUT,
    errors.LockTimeout: ExitCode.TIMED_OUT,
}


_BY_STATUS: Mapping[int, ExitCode] = {
    401: ExitCode.DENIED,
    403: ExitCode.DENIED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    410: ExitCode.NOT_FOUND,
    412: ExitCode.CONFLICT,
    429: ExitCode.REFUSED,
    503: ExitCode.REFUSED,
    507: ExitCode.REFUSED,
}
_CLIENT_FAULTS = range(400, 500)


def exit_code_for(error: AdeError) -> ExitCode:
    """What a server refuses without an error of our own goes by its status."""
    status = error.status if isinstance(error, ServerProblem) else None
    if status is None:
        return exit_code_of(type(error))
    usual = ExitCode.USAGE if status in _CLIENT_FAULTS else ExitCode.PROBLEM
    return _BY_STATUS.get(status, usual)


def exit_code_of(error: type[AdeError]) -> ExitCode:
    """The code of the nearest kind that has one; errors of one room alone name theirs in `exit_code`."""
    for kind in error.__mro__:
        if kind in _BY_ERROR:
            return _BY_ERROR[kind]
        if "exit_code" in vars(kind):
            return ExitCode(vars(kind)["exit_code"])
    return ExitCode.PROBLEM

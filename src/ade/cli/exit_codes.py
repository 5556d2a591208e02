"""Exit codes: every code, its meaning, and the errors that lead to it."""

from collections.abc import Mapping
from enum import IntEnum

from ade import errors as ade_errors
from ade.accounts import model as accounts_model
from ade.agents.conversations import model as conversations_model
from ade.approvals import errors as approvals_errors
from ade.errors import AdeError
from ade.server.problems import ServerProblem
from ade.settings import SettingsError
from ade.tasks.decisions import UnknownFingerprint


class ExitCode(IntEnum):
    """The exit codes of all commands."""

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
    ExitCode.PROBLEM: "a problem was found: an awaited task did not complete, a maintenance job of `sweep --once`"
    " failed, or `doctor` or `audit verify` found an error",
    ExitCode.USAGE: "the command, its options, the settings, the app or the task were not valid; nothing was stored",
    ExitCode.NOT_FOUND: "the task, approval, name, queue, schedule, agent, inbox, account, token, delegation, webhook,"
    " channel or fingerprint does not exist",
    ExitCode.CONFLICT: "the record is in a state that does not allow this, or another change came first",
    ExitCode.REFUSED: "rejected for now: a queue, an inbox, or the disk is full, too many approvals are open, or a rate"
    " limit was exceeded; try again later",
    ExitCode.STORE: "the store or the server cannot be used: missing, damaged, not writable, of another version, out of"
    " reach",
    ExitCode.DENIED: "not allowed: the caller is not authenticated or lacks the permission, or a guard rule forbids it",
    ExitCode.INTERNAL: "an internal error; `ADE_DEBUG=1` shows where",
    ExitCode.TIMED_OUT: "the time limit expired before the awaited event",
    ExitCode.INTERRUPTED: "ended by Ctrl-C",
    ExitCode.BROKEN_PIPE: "the reader of the output closed the pipe",
}

_BY_ERROR: Mapping[type[AdeError], ExitCode] = {
    AdeError: ExitCode.PROBLEM,
    SettingsError: ExitCode.USAGE,
    accounts_model.UnsafeBind: ExitCode.USAGE,
    ade_errors.AddressInUse: ExitCode.CONFLICT,
    ade_errors.NeedsStore: ExitCode.USAGE,
    ade_errors.InvalidTask: ExitCode.USAGE,
    ade_errors.InvalidArguments: ExitCode.USAGE,
    ade_errors.InvalidSchedule: ExitCode.USAGE,
    ade_errors.InvalidFilter: ExitCode.USAGE,
    ade_errors.InvalidUrl: ExitCode.USAGE,
    ade_errors.InvalidLock: ExitCode.USAGE,
    ade_errors.InvalidAgent: ExitCode.USAGE,
    ade_errors.InvalidProfile: ExitCode.USAGE,
    ade_errors.InvalidInbox: ExitCode.USAGE,
    conversations_model.InvalidInboxItem: ExitCode.USAGE,
    ade_errors.ProgramNotStarted: ExitCode.USAGE,
    ade_errors.InvalidWebhook: ExitCode.USAGE,
    ade_errors.InvalidNotification: ExitCode.USAGE,
    approvals_errors.AuthorRequired: ExitCode.USAGE,
    approvals_errors.InvalidPolicy: ExitCode.USAGE,
    approvals_errors.InvalidRulebook: ExitCode.USAGE,
    approvals_errors.InvalidSetting: ExitCode.USAGE,
    accounts_model.InvalidDelegation: ExitCode.USAGE,
    approvals_errors.InvalidSubject: ExitCode.USAGE,
    accounts_model.InvalidAccount: ExitCode.USAGE,
    accounts_model.InvalidToken: ExitCode.USAGE,
    accounts_model.WeakPassword: ExitCode.USAGE,
    ade_errors.DependencyCycle: ExitCode.USAGE,
    ade_errors.PayloadTooLarge: ExitCode.USAGE,
    ade_errors.UnknownTask: ExitCode.NOT_FOUND,
    ade_errors.UnknownName: ExitCode.NOT_FOUND,
    ade_errors.UnknownQueue: ExitCode.NOT_FOUND,
    ade_errors.UnknownSchedule: ExitCode.NOT_FOUND,
    ade_errors.UnknownAgent: ExitCode.NOT_FOUND,
    ade_errors.UnknownWorker: ExitCode.NOT_FOUND,
    conversations_model.UnknownInbox: ExitCode.NOT_FOUND,
    conversations_model.UnknownInboxItem: ExitCode.NOT_FOUND,
    approvals_errors.UnknownSetting: ExitCode.NOT_FOUND,
    ade_errors.UnknownDependency: ExitCode.NOT_FOUND,
    UnknownFingerprint: ExitCode.NOT_FOUND,
    accounts_model.UnknownAccount: ExitCode.NOT_FOUND,
    accounts_model.UnknownToken: ExitCode.NOT_FOUND,
    accounts_model.UnknownDelegation: ExitCode.NOT_FOUND,
    accounts_model.UnknownSession: ExitCode.NOT_FOUND,
    approvals_errors.UnknownRulebook: ExitCode.NOT_FOUND,
    ade_errors.UnknownWebhook: ExitCode.NOT_FOUND,
    ade_errors.UnknownChannel: ExitCode.NOT_FOUND,
    ade_errors.IllegalTransition: ExitCode.CONFLICT,
    ade_errors.StaleWrite: ExitCode.CONFLICT,
    ade_errors.IdempotencyConflict: ExitCode.CONFLICT,
    ade_errors.EffectInProgress: ExitCode.CONFLICT,
    ade_errors.LockLost: ExitCode.CONFLICT,
    ade_errors.LockPlaceLost: ExitCode.CONFLICT,
    ade_errors.UpgradeDeadlock: ExitCode.CONFLICT,
    ade_errors.DeadlockVictim: ExitCode.CONFLICT,
    ade_errors.StaleToken: ExitCode.CONFLICT,
    accounts_model.AccountExists: ExitCode.CONFLICT,
    accounts_model.LastAdmin: ExitCode.CONFLICT,
    conversations_model.InboxBusy: ExitCode.CONFLICT,
    ade_errors.QueueFull: ExitCode.REFUSED,
    conversations_model.InboxFull: ExitCode.REFUSED,
    accounts_model.TooManyRequests: ExitCode.REFUSED,
    accounts_model.NotAuthenticated: ExitCode.DENIED,
    ade_errors.NotPermitted: ExitCode.DENIED,
    ade_errors.LockNotPermitted: ExitCode.DENIED,
    approvals_errors.NotEligible: ExitCode.DENIED,
    approvals_errors.ConflictOfInterest: ExitCode.DENIED,
    approvals_errors.ReauthenticationNeeded: ExitCode.DENIED,
    approvals_errors.PasswordChangeNeeded: ExitCode.DENIED,
    approvals_errors.Denied: ExitCode.DENIED,
    approvals_errors.StepDenied: ExitCode.DENIED,
    ade_errors.AddressRefused: ExitCode.DENIED,
    ade_errors.InvalidSignature: ExitCode.DENIED,
    approvals_errors.UnknownApproval: ExitCode.NOT_FOUND,
    approvals_errors.TooManyApprovals: ExitCode.REFUSED,
    approvals_errors.NoGate: ExitCode.CONFLICT,
    approvals_errors.GateClosed: ExitCode.CONFLICT,
    approvals_errors.TaskCannotRun: ExitCode.CONFLICT,
    approvals_errors.DigestMismatch: ExitCode.CONFLICT,
    approvals_errors.ApprovalNotGood: ExitCode.CONFLICT,
    ade_errors.DiskFull: ExitCode.REFUSED,
    ade_errors.TooManyLocks: ExitCode.REFUSED,
    ade_errors.LockRateLimited: ExitCode.REFUSED,
    ade_errors.StoreError: ExitCode.STORE,
    ade_errors.ServerUnreachable: ExitCode.STORE,
    ade_errors.WaitTimeout: ExitCode.TIMED_OUT,
    ade_errors.LockTimeout: ExitCode.TIMED_OUT,
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
    """Return the exit code of an error. A server error without an ADE error class is mapped by its HTTP status."""
    status = error.status if isinstance(error, ServerProblem) else None
    if status is None:
        return exit_code_of(type(error))
    usual = ExitCode.USAGE if status in _CLIENT_FAULTS else ExitCode.PROBLEM
    return _BY_STATUS.get(status, usual)


def exit_code_of(error: type[AdeError]) -> ExitCode:
    """Return the code of the nearest base class that has one. Errors local to one module set `exit_code` themselves."""
    for kind in error.__mro__:
        if kind in _BY_ERROR:
            return _BY_ERROR[kind]
        if "exit_code" in vars(kind):
            return ExitCode(vars(kind)["exit_code"])
    return ExitCode.PROBLEM

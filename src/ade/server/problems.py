"""HTTP statuses of errors, and problem details (RFC 9457): written by the server, raised again by the client.

`STATUS_OF` maps codes, not classes, because some errors are defined in higher layers. A test checks that the code of
every error class has a status.
"""

import inspect
import math
from collections.abc import Iterator, Mapping
from enum import StrEnum, auto
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, structs

import ade.accounts.model
import ade.agents.conversations.model
import ade.approvals.errors
import ade.tasks.decisions
from ade.errors import AdeError

_BAD, _NO, _MISSING, _CONFLICT, _INVALID, _LATER, _FAULT = 400, 403, 404, 409, 422, 429, 500

STATUS_OF: Mapping[str, int] = {
    "ade_error": _FAULT,
    # the caller
    "not_authenticated": 401,
    "lock_not_permitted": _NO,
    "not_permitted": _NO,
    "not_eligible": _NO,
    "conflict_of_interest": _NO,
    "reauthentication_needed": _NO,
    "password_change_needed": _NO,
    "denied": _NO,
    "step_denied": _NO,
    # not found
    "unknown_account": _MISSING,
    "unknown_agent": _MISSING,
    "unknown_approval": _MISSING,
    "unknown_delegation": _MISSING,
    "unknown_fingerprint": _MISSING,
    "unknown_inbox": _MISSING,
    "unknown_inbox_item": _MISSING,
    "unknown_queue": _MISSING,
    "unknown_rulebook": _MISSING,
    "unknown_schedule": _MISSING,
    "unknown_session": _MISSING,
    "unknown_setting": _MISSING,
    "unknown_task": _MISSING,
    "unknown_token": _MISSING,
    "unknown_channel": _MISSING,
    "unknown_webhook": _MISSING,
    "unknown_worker": _MISSING,
    "result_expired": 410,
    # conflicts with the current state
    "account_exists": _CONFLICT,
    "ambiguous_id": _CONFLICT,
    "approval_not_good": _CONFLICT,
    "deadlock_victim": _CONFLICT,
    "digest_mismatch": _CONFLICT,
    "effect_in_progress": _CONFLICT,
    "effect_unknown": _CONFLICT,
    "gate_closed": _CONFLICT,
    "illegal_transition": _CONFLICT,
    "inbox_busy": _CONFLICT,
    "last_admin": _CONFLICT,
    "lock_lost": _CONFLICT,
    "lock_place_lost": _CONFLICT,
    "lock_timeout": _CONFLICT,
    "no_gate": _CONFLICT,
    "stale_lease": _CONFLICT,
    "stale_token": _CONFLICT,
    "stale_write": _CONFLICT,
    "task_cancelled": _CONFLICT,
    "task_cannot_run": _CONFLICT,
    "task_failed": _CONFLICT,
    "upgrade_deadlock": _CONFLICT,
    "wait_timeout": _CONFLICT,
    # invalid input
    "invalid_filter": _BAD,
    "payload_too_large": 413,
    "author_required": _INVALID,
    "dependency_cycle": _INVALID,
    "idempotency_conflict": _INVALID,
    "invalid_account": _INVALID,
    "invalid_agent": _INVALID,
    "invalid_arguments": _INVALID,
    "invalid_delegation": _INVALID,
    "invalid_inbox": _INVALID,
    "invalid_inbox_item": _INVALID,
    "invalid_lock": _INVALID,
    "invalid_notification": _INVALID,
    "invalid_policy": _INVALID,
    "invalid_profile": _INVALID,
    "invalid_result": _INVALID,
    "invalid_rulebook": _INVALID,
    "invalid_schedule": _INVALID,
    "invalid_setting": _INVALID,
    "invalid_signature": _INVALID,
    "invalid_subject": _INVALID,
    "invalid_task": _INVALID,
    "invalid_token": _INVALID,
    "invalid_webhook": _INVALID,
    "address_refused": _INVALID,
    "unknown_dependency": _INVALID,  # this and the next are named in the body, so the URL is right
    "unknown_name": _INVALID,
    "weak_password": _INVALID,
    # try again later
    "inbox_full": _LATER,
    "lock_rate_limited": _LATER,
    "queue_full": _LATER,
    "too_many_approvals": _LATER,
    "too_many_agents": _LATER,
    "too_many_locks": _LATER,
    "too_many_requests": _LATER,
    "not_confirmed": 503,
    "store_replaced": 503,
    "store_too_new": 503,
    "store_too_old": 503,
    "store_unavailable": 503,
    "disk_full": 507,
    "store_full": 507,
    # internal errors, or errors that no request can cause
    "address_in_use": _FAULT,
    "audit_broken": _FAULT,
    "bad_app": _FAULT,
    "bad_settings": _FAULT,
    "driver_missing": _FAULT,
    "internal": _FAULT,
    "interrupted": _FAULT,
    "needs_store": _FAULT,
    "invalid_url": _FAULT,
    "program_not_started": _FAULT,
    "run_over": _FAULT,
    "server_problem": _FAULT,
    "server_unreachable": _FAULT,  # another server, of which this one is a client
    "store_corrupt": _FAULT,
    "store_error": _FAULT,
    "store_foreign": _FAULT,
    "store_missing": _FAULT,
    "store_read_only": _FAULT,
    "store_unsupported": _FAULT,
    "unguarded_main": _FAULT,
    "unsafe_bind": _FAULT,
    "usage": _FAULT,
    "would_block": _FAULT,
}


class HttpFault(StrEnum):
    """Errors of the HTTP layer itself, before an operation runs. The value is the code of the problem."""

    __hash__ = str.__hash__  # faster: Enum.__hash__ is a Python function

    BAD_REQUEST = auto()
    INVALID_JSON = auto()
    INVALID_CURSOR = auto()
    CROSS_SITE_REQUEST = auto()
    NOT_FOUND = auto()
    METHOD_NOT_ALLOWED = auto()
    NOT_ACCEPTABLE = auto()
    REQUEST_TIMEOUT = auto()
    REQUEST_IN_PROGRESS = auto()
    ANSWER_NOT_KEPT = auto()
    PRECONDITION_FAILED = auto()
    PAYLOAD_TOO_LARGE = auto()  # the same code as the equivalent AdeError
    URI_TOO_LONG = auto()
    UNSUPPORTED_MEDIA_TYPE = auto()
    MISDIRECTED_REQUEST = auto()
    INVALID_BODY = auto()
    IDEMPOTENCY_CONFLICT = auto()
    PRECONDITION_REQUIRED = auto()
    TOO_MANY_REQUESTS = auto()
    HEADERS_TOO_LARGE = auto()
    INTERNAL = auto()
    UNAVAILABLE = auto()


FAULTS: Mapping[HttpFault, tuple[int, str]] = {
    HttpFault.BAD_REQUEST: (400, "The request cannot be read. Correct what the sentence names."),
    HttpFault.INVALID_JSON: (400, "The body is not one valid JSON value. Correct what the sentence names."),
    HttpFault.INVALID_CURSOR: (400, "The cursor does not belong to this list. Begin again without one."),
    HttpFault.CROSS_SITE_REQUEST: (403, "The request comes from a page of another site. Use a bearer token instead."),
    HttpFault.NOT_FOUND: (404, "There is nothing at this address."),
    HttpFault.METHOD_NOT_ALLOWED: (
        405,
        "This address does not take this method. The header Allow names those it takes.",
    ),
    HttpFault.NOT_ACCEPTABLE: (406, "None of the formats in Accept is offered here."),
    HttpFault.REQUEST_TIMEOUT: (408, "The body did not arrive in time. Send the request again."),
    HttpFault.REQUEST_IN_PROGRESS: (409, "The first request with this Idempotency-Key still runs. Try again later."),
    HttpFault.ANSWER_NOT_KEPT: (409, "The request was carried out before, and its answer was too large to be kept."),
    HttpFault.PRECONDITION_FAILED: (412, "The record is not the one that the request names. Read it again."),
    HttpFault.PAYLOAD_TOO_LARGE: (413, "The body is larger than the limit. Send less, or pass a reference."),
    HttpFault.URI_TOO_LONG: (414, "The address is longer than the limit."),
    HttpFault.UNSUPPORTED_MEDIA_TYPE: (415, "The body has a format that is not taken here. Send application/json."),
    HttpFault.MISDIRECTED_REQUEST: (421, "This server does not answer for the host that the request names."),
    HttpFault.INVALID_BODY: (422, "The request does not fit what is expected here; `errors` names each place."),
    HttpFault.IDEMPOTENCY_CONFLICT: (422, "This Idempotency-Key was used before for another request. Use a new one."),
    HttpFault.PRECONDITION_REQUIRED: (428, "Say with If-Match which version is meant. A GET answers it as ETag."),
    HttpFault.TOO_MANY_REQUESTS: (429, "You ask more often than you may. Try again after Retry-After seconds."),
    HttpFault.HEADERS_TOO_LARGE: (431, "The headers are too many or too large."),
    HttpFault.INTERNAL: (500, "A bug in ADE. The server's log has more under the instance named here."),
    HttpFault.UNAVAILABLE: (503, "The server cannot do this now. Try again after Retry-After seconds."),
}

FAULT_OF_STATUS: Mapping[int, HttpFault] = {
    status: fault
    for fault, (status, _) in reversed([*FAULTS.items()])  # of several, the first is the generic one
    if fault not in (HttpFault.REQUEST_IN_PROGRESS, HttpFault.ANSWER_NOT_KEPT, HttpFault.CROSS_SITE_REQUEST)
}


MEDIA_TYPE = "application/problem+json"
_MEMBERS = ("retry_after", "retry_after_ms", "task_id", "reason", "first_seq")  # of errors, also in the problem
_RESERVED = frozenset({"type", "title", "status", "detail", "instance", "code"})
_LONGEST_DETAIL = 2_000
_SERVER_FAULT = 500


class Problem(Struct, frozen=True, kw_only=True):
    """The body of an error response. Programs should check the stable `code`; `more` has additional members."""

    code: str
    status: int
    title: str
    detail: str
    instance: str | None = None  # the request ID, as in the log
    base_path: str = ""  # of the server
    more: Mapping[str, object] = {}
    headers: Mapping[str, str] = {}

    @property
    def type(self) -> str:
        """A relative URL, so that it is valid at every address of the server."""
        return f"{self.base_path}/problems/{self.code}"

    def members(self) -> dict[str, object]:
        known: dict[str, object] = {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        if self.instance is not None:
            known["instance"] = self.instance
        more = {name: value for name, value in self.more.items() if name not in _RESERVED}
        return {name: _whole(value) if isinstance(value, str) else value for name, value in (known | more).items()}

    def body(self) -> bytes:
        return msgspec.json.encode(self.members(), order="deterministic")

    def with_instance(self, instance: str, base_path: str = "") -> "Problem":
        return structs.replace(self, instance=instance, base_path=base_path)


class RequestRefused(Exception):
    """The HTTP layer rejects the request. Only the HTTP layer raises it and responds to it."""

    def __init__(self, fault: HttpFault, detail: str = "", **more: object) -> None:
        self.problem = problem_of_fault(fault, detail, more=more)
        super().__init__(self.problem.detail)


def status_of(error: type[AdeError]) -> int:
    """Return the status of an error class, or of its nearest base class whose code has one."""
    codes = (vars(kind)["code"] for kind in error.__mro__ if "code" in vars(kind))
    return next((STATUS_OF[code] for code in codes if code in STATUS_OF), _SERVER_FAULT)


def problem_of_error(error: AdeError) -> Problem:
    """Return the problem for an error.

    For an internal error, it contains only the generic message, because the detail might reveal paths on the server.
    """
    status, general = status_of(type(error)), inspect.cleandoc(type(error).__doc__ or "")
    is_ours = status >= _SERVER_FAULT
    values = {} if is_ours else {name: getattr(error, name, None) for name in _MEMBERS}
    values["advice"] = (type(error).usual_advice if is_ours else error.advice)[:_LONGEST_DETAIL] or None
    more = {name: value for name, value in values.items() if value is not None}
    return Problem(
        code=error.code,
        status=status,
        title=_title(general),
        detail=(general if is_ours else error.detail)[:_LONGEST_DETAIL],
        more=more,
        headers=_headers(status, more),
    )


def problem_of_fault(fault: HttpFault, detail: str = "", *, more: Mapping[str, object] | None = None) -> Problem:
    """Return the problem for an HTTP error. A 500 never shows the detail."""
    status, general = FAULTS[fault]
    shown = general if status == _SERVER_FAULT else detail or general
    members = dict(more or {})
    return Problem(
        code=fault,
        status=status,
        title=_title(general),
        detail=shown[:_LONGEST_DETAIL],
        more=members,
        headers=_headers(status, members),
    )


def problem_of_status(status: int, *, allow: tuple[str, ...] = ()) -> Problem:
    """Return the problem for a bare status. An unknown status becomes 400, or 500 from 500 on."""
    fault = FAULT_OF_STATUS.get(status, HttpFault.BAD_REQUEST if 400 <= status < _SERVER_FAULT else HttpFault.INTERNAL)
    problem = problem_of_fault(fault, more={"allow": list(allow)} if allow else None)
    return structs.replace(problem, headers={**problem.headers, "Allow": ", ".join(allow)}) if allow else problem


def problem_of_code(code: str) -> Problem | None:
    """Return the problem that a code stands for, or None if no error has this code."""
    fault = next((fault for fault in FAULTS if fault == code), None)
    if fault is not None:
        return problem_of_fault(fault)
    kinds = [AdeError]
    while kinds:
        kind = kinds.pop()
        if kind.code == code:
            general = inspect.cleandoc(kind.__doc__ or "")
            more = {"advice": kind.usual_advice} if kind.usual_advice else {}
            return Problem(code=code, status=status_of(kind), title=_title(general), detail=general, more=more)
        kinds += kind.__subclasses__()
    return None


def refused_fields(errors: Mapping[str, str]) -> RequestRefused:
    """Return a 422 rejection with a reason for each field, such as `priority` or `tasks[3].queue`."""
    listed = [{"at": place, "reason": reason[:_LONGEST_DETAIL]} for place, reason in list(errors.items())[:100]]
    first = next(iter(errors.items()), None)
    detail = "" if first is None else f"{first[0]}: {first[1]}" if first[0] else first[1]
    return RequestRefused(HttpFault.INVALID_BODY, detail, errors=listed)


def retry_after(seconds: float) -> str:
    """Return the value of Retry-After: whole seconds, rounded up."""
    return str(max(1, math.ceil(seconds))) if math.isfinite(seconds) else "1"


def _whole(text: str) -> str:
    """Replace lone surrogates, as in file names, which JSON cannot encode."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _title(general: str) -> str:
    """The first sentence."""
    return " ".join(general.split()).partition(". ")[0].partition("; ")[0].rstrip(".")


def _headers(status: int, more: Mapping[str, object]) -> dict[str, str]:
    if status == 401:
        return {"WWW-Authenticate": 'Bearer realm="ade"'}
    if status not in (429, 503):
        return {}
    milliseconds = more.get("retry_after_ms")
    seconds = milliseconds / 1000 if isinstance(milliseconds, int) else more.get("retry_after", 1.0)
    return {"Retry-After": retry_after(seconds if isinstance(seconds, int | float) else 1.0)}


# The client side: a problem becomes the error again that it was made from, by its code.

_KNOWN = frozenset({"type", "title", "status", "detail", "instance", "code"})
_LONGEST_DETAIL_RAISING = 2_000


class ServerProblem(AdeError):
    """The server rejected the request, or sent a response that this version of ADE does not understand."""

    code = "server_problem"

    def __init__(self, detail: str = "", *, problem: Problem | None = None) -> None:
        super().__init__(detail)
        self.problem = problem
        if problem is not None:
            self.code = problem.code

    @property
    def status(self) -> int | None:
        return None if self.problem is None else self.problem.status


def error_of(problem: Problem) -> AdeError:
    """Return an error of the class with this code and the members of the problem, or a ServerProblem."""
    kind = _errors().get(problem.code)
    if kind is None or kind is ServerProblem:
        return ServerProblem(problem.detail, problem=problem)
    error = kind(problem.detail)
    for name, value in problem.more.items():
        if name in vars(error):
            setattr(error, name, value)
    return error


def error_of_refusal(refused: RequestRefused) -> AdeError:
    """Return the error that a client raises for a rejected request, also without HTTP."""
    return error_of(refused.problem)


def read_problem(status: int, body: bytes, headers: Mapping[str, str]) -> Problem:
    """Parse a problem body. Without one, as from a proxy, the problem has only the status."""
    try:
        members: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        members = None
    if not isinstance(members, dict) or not isinstance(members.get("code"), str):
        detail = f"the response has status {status} and no details; is this the address of an ADE server?"
        return Problem(code=ServerProblem.code, status=status, title="", detail=detail, headers=headers)
    return Problem(
        code=members["code"][:100],
        status=status,
        title=_text(members.get("title")),
        detail=_text(members.get("detail")),
        instance=_text(members.get("instance")) or None,
        more={name: value for name, value in members.items() if name not in _KNOWN},
        headers=headers,
    )


def _text(value: object) -> str:
    return value[:_LONGEST_DETAIL_RAISING] if isinstance(value, str) else ""


# The modules that define the errors of operations, which a client raises again.
_ERROR_MODULES = frozenset(
    {
        __name__,
        AdeError.__module__,
        ade.accounts.model.__name__,
        ade.agents.conversations.model.__name__,
        ade.approvals.errors.__name__,
        ade.tasks.decisions.__name__,
    }
)


@cache
def _errors() -> Mapping[str, type[AdeError]]:
    return {kind.code: kind for kind in _family(AdeError) if kind.__module__ in _ERROR_MODULES}


def _family(kind: type[AdeError]) -> Iterator[type[AdeError]]:
    yield kind
    for heir in kind.__subclasses__():
        yield from _family(heir)

"""Which HTTP status an error leads to: one line for every code of an `AdeError`, and for all that HTTP itself refuses.

By code, not by class, because some errors live in rooms above the core. A test walks all classes, so that a new error
without a line here fails it.
"""

from collections.abc import Mapping
from enum import StrEnum, auto

_BAD, _NO, _MISSING, _CONFLICT, _INVALID, _LATER, _FAULT = 400, 403, 404, 409, 422, 429, 500

STATUS_OF: Mapping[str, int] = {
    "ade_error": _FAULT,
    # who asks
    "not_authenticated": 401,
    "not_permitted": _NO,
    "not_eligible": _NO,
    "conflict_of_interest": _NO,
    "reauthentication_needed": _NO,
    "denied": _NO,
    # what there is not
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
    "unknown_webhook": _MISSING,
    "unknown_worker": _MISSING,
    "result_expired": 410,
    # how things stand
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
    "lock_timeout": _CONFLICT,
    "no_gate": _CONFLICT,
    "stale_lease": _CONFLICT,
    "stale_token": _CONFLICT,
    "stale_write": _CONFLICT,
    "task_cancelled": _CONFLICT,
    "task_failed": _CONFLICT,
    "upgrade_deadlock": _CONFLICT,
    "wait_timeout": _CONFLICT,
    # what was sent
    "invalid_filter": _BAD,
    "payload_too_large": 413,
    "dependency_cycle": _INVALID,
    "idempotency_conflict": _INVALID,
    "invalid_account": _INVALID,
    "invalid_agent": _INVALID,
    "invalid_arguments": _INVALID,
    "invalid_delegation": _INVALID,
    "invalid_inbox": _INVALID,
    "invalid_inbox_item": _INVALID,
    "invalid_lock": _INVALID,
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
    "unknown_dependency": _INVALID,  # both are named in the body, so the address is right
    "unknown_name": _INVALID,
    "weak_password": _INVALID,
    # not now
    "inbox_full": _LATER,
    "lock_rate_limited": _LATER,
    "queue_full": _LATER,
    "too_many_agents": _LATER,
    "too_many_locks": _LATER,
    "too_many_requests": _LATER,
    "not_confirmed": 503,
    "store_unavailable": 503,
    "disk_full": 507,
    "store_full": 507,
    # faults of the server, or of a program that no request can cause
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
    "store_too_new": _FAULT,
    "store_unsupported": _FAULT,
    "unguarded_main": _FAULT,
    "unsafe_bind": _FAULT,
    "usage": _FAULT,
    "would_block": _FAULT,
}


class Fault(StrEnum):
    """What HTTP itself refuses, before anything of ADE was asked. The value is the problem's code."""

    __hash__ = str.__hash__  # an Enum's own is a Python function

    BAD_REQUEST = auto()
    INVALID_JSON = auto()
    INVALID_CURSOR = auto()
    CROSS_SITE_REQUEST = auto()
    NOT_FOUND = auto()
    METHOD_NOT_ALLOWED = auto()
    NOT_ACCEPTABLE = auto()
    REQUEST_IN_PROGRESS = auto()
    ANSWER_NOT_KEPT = auto()
    PRECONDITION_FAILED = auto()
    PAYLOAD_TOO_LARGE = auto()  # these share the code of the error that means the same
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


FAULTS: Mapping[Fault, tuple[int, str]] = {
    Fault.BAD_REQUEST: (400, "The request cannot be read. Correct what the sentence names."),
    Fault.INVALID_JSON: (400, "The body is not one valid JSON value. Correct what the sentence names."),
    Fault.INVALID_CURSOR: (400, "The cursor does not belong to this list. Begin again without one."),
    Fault.CROSS_SITE_REQUEST: (403, "The request comes from a page of another site. Use a bearer token instead."),
    Fault.NOT_FOUND: (404, "There is nothing at this address."),
    Fault.METHOD_NOT_ALLOWED: (405, "This address does not take this method. The header Allow names those it takes."),
    Fault.NOT_ACCEPTABLE: (406, "None of the formats in Accept is offered here."),
    Fault.REQUEST_IN_PROGRESS: (409, "The first request with this Idempotency-Key still runs. Try again later."),
    Fault.ANSWER_NOT_KEPT: (409, "The request was carried out before, and its answer was too large to be kept."),
    Fault.PRECONDITION_FAILED: (412, "The record is not the one that the request names. Read it again."),
    Fault.PAYLOAD_TOO_LARGE: (413, "The body is larger than the limit. Send less, or pass a reference."),
    Fault.URI_TOO_LONG: (414, "The address is longer than the limit."),
    Fault.UNSUPPORTED_MEDIA_TYPE: (415, "The body has a format that is not taken here. Send application/json."),
    Fault.MISDIRECTED_REQUEST: (421, "This server does not answer for the host that the request names."),
    Fault.INVALID_BODY: (422, "The request does not fit what is expected here; `errors` names each place."),
    Fault.IDEMPOTENCY_CONFLICT: (422, "This Idempotency-Key was used before for another request. Use a new one."),
    Fault.PRECONDITION_REQUIRED: (428, "Say with If-Match which version is meant. A GET answers it as ETag."),
    Fault.TOO_MANY_REQUESTS: (429, "You ask more often than you may. Try again after Retry-After seconds."),
    Fault.HEADERS_TOO_LARGE: (431, "The headers are too many or too large."),
    Fault.INTERNAL: (500, "A fault of ADE itself. The server's log has more under the instance named here."),
    Fault.UNAVAILABLE: (503, "The server cannot do this now. Try again after Retry-After seconds."),
}

FAULT_OF_STATUS: Mapping[int, Fault] = {
    status: fault
    for fault, (status, _) in reversed([*FAULTS.items()])  # of several, the first is the plain one
    if fault not in (Fault.REQUEST_IN_PROGRESS, Fault.ANSWER_NOT_KEPT, Fault.CROSS_SITE_REQUEST)
}

"""Problem details (RFC 9457): the body of every answer that is an error.

How it is used: one handler for `AdeError` (`problem_of_error`), one for `RequestRefused` (its `problem`), one for what
the framework itself refuses (`problem_of_status`), one for everything else (`problem_of_status(500)`, and the log gets
the exception under the same `instance`). Each sends `problem.status`, `problem.headers` and `problem.body()`.
"""

import inspect
import math
from collections.abc import Mapping

import msgspec
from msgspec import Struct, structs

from ade.core.errors import AdeError
from ade.core.web.statuses import FAULT_OF_STATUS, FAULTS, STATUS_OF, Fault

MEDIA_TYPE = "application/problem+json"
_MEMBERS = ("retry_after", "retry_after_ms", "task_id", "reason", "first_seq")  # of errors, for programs
_RESERVED = frozenset({"type", "title", "status", "detail", "instance", "code"})
_LONGEST_DETAIL = 2_000
_SERVER_FAULT = 500


class Problem(Struct, frozen=True, kw_only=True):
    """`code` is stable, and what programs should look at; `more` has members beyond those of the standard."""

    code: str
    status: int
    title: str
    detail: str
    instance: str | None = None  # the id of the request, as the log has it
    more: Mapping[str, object] = {}
    headers: Mapping[str, str] = {}

    @property
    def type(self) -> str:
        """Relative, so that it holds wherever the server is reached."""
        return f"/problems/{self.code}"

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

    def with_instance(self, instance: str) -> "Problem":
        return structs.replace(self, instance=instance)


class RequestRefused(Exception):
    """HTTP's own conventions do not allow this request. Only the HTTP layer raises and answers it."""

    def __init__(self, fault: Fault, detail: str = "", **more: object) -> None:
        self.problem = problem_of_fault(fault, detail, more=more)
        super().__init__(self.problem.detail)


def status_of(error: type[AdeError]) -> int:
    """That of the nearest kind whose code has one."""
    codes = (vars(kind)["code"] for kind in error.__mro__ if "code" in vars(kind))
    return next((STATUS_OF[code] for code in codes if code in STATUS_OF), _SERVER_FAULT)


def problem_of_error(error: AdeError) -> Problem:
    """What somebody is told. Of faults of the server only the general sentence: the detail may name places in it."""
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


def problem_of_fault(fault: Fault, detail: str = "", *, more: Mapping[str, object] | None = None) -> Problem:
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
    """For what a framework refuses by itself. A status without a line is a 400, or from 500 on a 500."""
    fault = FAULT_OF_STATUS.get(status, Fault.BAD_REQUEST if 400 <= status < _SERVER_FAULT else Fault.INTERNAL)
    problem = problem_of_fault(fault, more={"allow": list(allow)} if allow else None)
    return structs.replace(problem, headers={**problem.headers, "Allow": ", ".join(allow)}) if allow else problem


def problem_of_code(code: str) -> Problem | None:
    """What a code stands for, whoever raises it; None: nobody does."""
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
    """422 with a reason for each place, such as `priority` or `tasks[3].queue`."""
    listed = [{"at": place, "reason": reason[:_LONGEST_DETAIL]} for place, reason in list(errors.items())[:100]]
    first = next(iter(errors.items()), None)
    detail = "" if first is None else f"{first[0]}: {first[1]}" if first[0] else first[1]
    return RequestRefused(Fault.INVALID_BODY, detail, errors=listed)


def retry_after(seconds: float) -> str:
    """Whole seconds, rather one too many than one too few."""
    return str(max(1, math.ceil(seconds))) if math.isfinite(seconds) else "1"


def _whole(text: str) -> str:
    """Halves of surrogate pairs, as in names of files, would make the answer unreadable."""
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

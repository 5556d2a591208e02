"""What a server tells is raised at the client as what it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ade.errors import AdeError, DeadlockVictim, IdempotencyConflict, QueueFull, TaskCancelled
from ade.server.etags import stale_precondition
from ade.server.problems import (
    FAULTS,
    STATUS_OF,
    HttpFault,
    RequestRefused,
    ServerProblem,
    error_of,
    error_of_refusal,
    problem_of_error,
    problem_of_fault,
    read_problem,
    refused_fields,
    status_of,
)
from tests.architecture.test_errors import all_errors
from tests.domain import TooManyRequests

_SERVER_FAULT = 500
_ELSEWHERE = (
    "ade.cli.",
    "ade.agents.background",
    "ade.agents.runs",
    "ade.agents.protocols",
    "ade.server.",
)  # no operation
_ALL = sorted(all_errors(), key=lambda error: error.code)
TOLD = [each for each in _ALL if status_of(each) < _SERVER_FAULT and not each.__module__.startswith(_ELSEWHERE)]
OTHERS = [each for each in _ALL if each not in TOLD]


def sent(error: AdeError) -> AdeError:
    """An error as it comes out at the other end."""
    problem = problem_of_error(error)
    headers = {name.lower(): value for name, value in problem.headers.items()}
    return error_of(read_problem(problem.status, problem.with_instance("urn:1").body(), headers))


@pytest.mark.parametrize("kind", TOLD, ids=lambda kind: kind.code)
def test_every_error_that_is_told_comes_back_as_itself(kind: type[AdeError]) -> None:
    error = sent(kind("what happened"))
    assert (type(error), error.code, error.detail) == (kind, kind.code, "what happened")


@pytest.mark.parametrize("kind", OTHERS, ids=lambda kind: kind.code)
def test_all_others_keep_their_code(kind: type[AdeError]) -> None:
    assert sent(kind()).code == kind.code


def test_what_an_error_tells_programs_comes_with_it() -> None:
    for error, name in (
        (QueueFull("full", retry_after=2.5), "retry_after"),
        (TooManyRequests("slowly", retry_after=7.0), "retry_after"),
        (TaskCancelled("gone", task_id="t", reason="why"), "reason"),
        (DeadlockVictim("you", 17), "first_seq"),
    ):
        assert getattr(sent(error), name) == getattr(error, name)


@pytest.mark.parametrize("kind", TOLD, ids=lambda kind: kind.code)
def test_what_helps_at_a_command_line_comes_with_it_and_apart(kind: type[AdeError]) -> None:
    told = kind("what happened")
    told.advice = "`ade help` helps"
    problem = problem_of_error(told)

    assert (problem.detail, problem.members()["advice"]) == ("what happened", "`ade help` helps")
    assert str(sent(told)) == "what happened; `ade help` helps"
    assert "advice" not in problem_of_error(kind("what happened")).members()
    assert (sent(kind()).detail, sent(kind()).advice) == (kind().detail, kind.usual_advice)


@pytest.mark.parametrize("fault", HttpFault)
def test_every_refusal_of_http_has_an_error_too(fault: HttpFault) -> None:
    error = error_of(problem_of_fault(fault, "because"))
    assert error.code == fault
    if fault in STATUS_OF and fault is not HttpFault.INTERNAL:
        assert not isinstance(error, ServerProblem)
    else:
        assert isinstance(error, ServerProblem)
        assert error.status == FAULTS[fault][0]


def test_a_refusal_without_a_server_is_the_same_error() -> None:
    error = error_of_refusal(stale_precondition(7))
    assert isinstance(error, ServerProblem)
    assert (error.code, error.status) == ("precondition_failed", 412)
    assert isinstance(error_of_refusal(RequestRefused(HttpFault.IDEMPOTENCY_CONFLICT)), IdempotencyConflict)
    fields = error_of_refusal(refused_fields({"priority": "too large"}))
    assert isinstance(fields, ServerProblem)
    assert fields.problem is not None
    assert fields.problem.more["errors"] == [{"at": "priority", "reason": "too large"}]


@given(st.binary(max_size=200), st.integers(400, 599))
def test_an_answer_that_is_no_problem_is_one_all_the_same(body: bytes, status: int) -> None:
    error = error_of(read_problem(status, body, {}))
    assert isinstance(error, AdeError)
    assert error.detail


@pytest.mark.parametrize("body", [b'{"code": 7}', b"[]", b"<html>", b'{"code": "x", "detail": {}}'])
def test_strange_problems_do_no_harm(body: bytes) -> None:
    error = error_of(read_problem(502, body, {}))
    assert isinstance(error, ServerProblem)
    assert error.status == 502

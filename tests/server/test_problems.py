"""Every error has its status and its words, and none tells what is inside the server."""

import json

import pytest

from ade import errors as ade_errors
from ade.errors import AdeError
from ade.server.problems import (
    FAULTS,
    STATUS_OF,
    HttpFault,
    Problem,
    RequestRefused,
    problem_of_error,
    problem_of_fault,
    problem_of_status,
    refused_fields,
    retry_after,
    status_of,
)
from tests.architecture.test_errors import all_errors
from tests.domain import NotAuthenticated, TooManyRequests


def test_every_error_has_a_status_of_its_own() -> None:
    codes = {error.code for error in all_errors()}

    assert sorted(codes - set(STATUS_OF)) == [], "add a line to ade/core/web/statuses.py for these"
    assert sorted(set(STATUS_OF) - codes) == [], "ade/core/web/statuses.py has codes that do not exist"
    assert all(400 <= status < 600 for status in STATUS_OF.values())


def test_every_fault_has_a_line_and_those_that_share_a_code_share_the_status() -> None:
    assert set(FAULTS) == set(HttpFault)
    shared = {fault: FAULTS[fault][0] for fault in HttpFault if fault in STATUS_OF}
    assert shared == {fault: STATUS_OF[fault] for fault in shared}


def test_an_error_becomes_a_problem() -> None:
    problem = problem_of_error(ade_errors.UnknownTask("no task 'x' exists")).with_instance("r-1")

    assert json.loads(problem.body()) == {
        "type": "/problems/unknown_task",
        "title": "No task with this id exists",
        "status": 404,
        "detail": "no task 'x' exists",
        "code": "unknown_task",
        "instance": "r-1",
    }


def test_faults_of_the_server_tell_nothing_of_its_inside() -> None:
    secret = "/var/lib/secret.db, password hunter2"
    for error in all_errors():
        if status_of(error) >= 500:
            problem = problem_of_error(error(secret))
            assert b"hunter2" not in problem.body()
            assert problem.detail
    assert b"hunter2" not in problem_of_fault(HttpFault.INTERNAL, secret).body()


def test_every_error_can_be_told() -> None:
    for error in all_errors():
        problem = problem_of_error(error())
        assert problem.title
        assert problem.status == STATUS_OF[problem.code]
        json.loads(problem.body())


def test_an_error_nobody_knows_is_a_fault_of_ours_and_an_heir_is_as_its_parent() -> None:
    class New(AdeError):
        """Something new."""

        code = "brand_new"

    class Heir(ade_errors.UnknownTask):
        """A kind of task is missing."""

        code = "heir"

    assert status_of(New) == 500
    assert status_of(Heir) == 404


def test_members_for_programs_and_headers_for_clients() -> None:
    late = problem_of_error(TooManyRequests("too often", retry_after=2.2))
    lock = problem_of_error(ade_errors.LockRateLimited("too often", retry_after_ms=1500))
    victim = problem_of_error(ade_errors.DeadlockVictim("gave way", first_seq=7))

    assert (late.status, late.more, late.headers) == (429, {"retry_after": 2.2}, {"Retry-After": "3"})
    assert lock.headers == {"Retry-After": "2"}
    assert victim.members()["first_seq"] == 7
    assert "Bearer" in problem_of_error(NotAuthenticated()).headers["WWW-Authenticate"]
    assert problem_of_error(ade_errors.StoreUnavailable("at host x")).headers == {"Retry-After": "1"}


def test_no_member_takes_the_place_of_a_standard_one() -> None:
    problem = Problem(code="x", status=400, title="t", detail="d", more={"status": 200, "type": "/y", "n": 1})

    assert problem.members() == {
        "type": "/problems/x", "title": "t", "status": 400, "detail": "d", "code": "x", "n": 1
    }  # fmt: skip


def test_an_answer_can_be_read_whatever_was_asked_for() -> None:
    problem = problem_of_error(ade_errors.UnknownTask("no task '\udcff' exists"))

    assert json.loads(problem.body())["detail"] == "no task '?' exists"


@pytest.mark.parametrize("status", [404, 405, 406, 413, 415, 422, 428, 429, 500, 503])
def test_what_a_framework_refuses_has_words_too(status: int) -> None:
    problem = problem_of_status(status)

    assert problem.status == status
    assert problem.title
    assert problem.detail


def test_405_says_what_is_allowed_and_an_odd_status_becomes_a_plain_one() -> None:
    assert problem_of_status(405, allow=("GET", "POST")).headers == {"Allow": "GET, POST"}
    assert problem_of_status(418).status == 400
    assert problem_of_status(599).status == 500


def test_each_field_that_does_not_fit_is_named() -> None:
    refused = refused_fields({"priority": "use 0 to 9", "tags[3]": "too long"})

    assert isinstance(refused, RequestRefused)
    assert refused.problem.status == 422
    assert refused.problem.detail == "priority: use 0 to 9"
    assert refused.problem.more["errors"] == [
        {"at": "priority", "reason": "use 0 to 9"},
        {"at": "tags[3]", "reason": "too long"},
    ]


def test_retry_after_is_never_too_early() -> None:
    waits = [retry_after(seconds) for seconds in (0, 0.2, 1, 1.01, float("nan"))]

    assert waits == ["1", "1", "1", "2", "1"]

"""What a server refuses ends a command as the same refusal of a local store would."""

import pytest

from ade.cli.exit_codes import ExitCode, exit_code_for
from ade.errors import UnknownTask
from ade.server.problems import HttpFault, ServerProblem, error_of, problem_of_error, problem_of_fault


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (HttpFault.NOT_FOUND, ExitCode.NOT_FOUND),
        (HttpFault.PRECONDITION_FAILED, ExitCode.CONFLICT),
        (HttpFault.PRECONDITION_REQUIRED, ExitCode.USAGE),
        (HttpFault.INVALID_BODY, ExitCode.USAGE),
        (HttpFault.INVALID_CURSOR, ExitCode.USAGE),
        (HttpFault.CROSS_SITE_REQUEST, ExitCode.DENIED),
        (HttpFault.TOO_MANY_REQUESTS, ExitCode.REFUSED),
        (HttpFault.UNAVAILABLE, ExitCode.REFUSED),
        (HttpFault.INTERNAL, ExitCode.PROBLEM),
    ],
)
def test_a_refusal_of_http_has_an_exit_code(fault: HttpFault, code: ExitCode) -> None:
    assert exit_code_for(error_of(problem_of_fault(fault))) is code


def test_an_error_of_ours_keeps_its_own() -> None:
    assert exit_code_for(error_of(problem_of_error(UnknownTask()))) is ExitCode.NOT_FOUND
    assert exit_code_for(ServerProblem("what is this?")) is ExitCode.PROBLEM

"""What a server refuses ends a command as the same refusal of a local store would."""

import pytest

from ade.cli.exit_codes import ExitCode, exit_code_for
from ade.core.errors import UnknownTask
from ade.core.web.problems import problem_of_error, problem_of_fault
from ade.core.web.raising import ServerProblem, error_of
from ade.core.web.statuses import Fault


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.NOT_FOUND, ExitCode.NOT_FOUND),
        (Fault.PRECONDITION_FAILED, ExitCode.CONFLICT),
        (Fault.PRECONDITION_REQUIRED, ExitCode.USAGE),
        (Fault.INVALID_BODY, ExitCode.USAGE),
        (Fault.INVALID_CURSOR, ExitCode.USAGE),
        (Fault.CROSS_SITE_REQUEST, ExitCode.DENIED),
        (Fault.TOO_MANY_REQUESTS, ExitCode.REFUSED),
        (Fault.UNAVAILABLE, ExitCode.REFUSED),
        (Fault.INTERNAL, ExitCode.PROBLEM),
    ],
)
def test_a_refusal_of_http_has_an_exit_code(fault: Fault, code: ExitCode) -> None:
    assert exit_code_for(error_of(problem_of_fault(fault))) is code


def test_an_error_of_ours_keeps_its_own() -> None:
    assert exit_code_for(error_of(problem_of_error(UnknownTask()))) is ExitCode.NOT_FOUND
    assert exit_code_for(ServerProblem("what is this?")) is ExitCode.PROBLEM

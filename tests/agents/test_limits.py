"""Of a worker's environment an agent sees what it is allowed to see."""

from ade.agents.limits import environment_for

WORKER = {
    "PATH": "/bin",
    "LC_ALL": "C",
    "ADE_STORE": "redis://secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "LETTA_API_KEY": "for letta",
    "LETTA_BASE_URL": "http://letta",
}


def test_only_harmless_names_pass_by_themselves() -> None:
    assert environment_for(source=WORKER) == {"PATH": "/bin", "LC_ALL": "C"}


def test_a_profile_lets_names_pass() -> None:
    passed = environment_for(["LETTA_*"], source=WORKER)

    assert set(passed) == {"PATH", "LC_ALL", "LETTA_API_KEY", "LETTA_BASE_URL"}


def test_what_is_given_needs_no_leave_and_goes_first() -> None:
    passed = environment_for(["LETTA_API_KEY"], {"LETTA_API_KEY": "another", "EXTRA": "1"}, source=WORKER)

    assert passed == {"PATH": "/bin", "LC_ALL": "C", "LETTA_API_KEY": "another", "EXTRA": "1"}

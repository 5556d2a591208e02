"""Where a server listens, and by which names it is known."""

import pytest

from ade.server.addresses import LOOPBACK_HOSTS, base_url, check_host, hosts_of
from tests.server.refusals import refused


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8411"),
        ("::1", "http://[::1]:8411"),
        ("0.0.0.0", "http://localhost:8411"),
        ("::", "http://localhost:8411"),
        ("ade.example.org", "http://ade.example.org:8411"),
    ],
)
def test_people_are_told_an_address_that_leads_there(host: str, url: str) -> None:
    assert base_url(host, 8411) == url


def test_a_server_is_known_by_the_machine_its_address_and_what_was_set() -> None:
    known = hosts_of("FD00::7", ["ADE.example.org"])

    assert known == LOOPBACK_HOSTS | {"[fd00::7]", "ade.example.org"}
    assert check_host("[fd00::7]:8411", known) == "[fd00::7]"
    assert hosts_of("0.0.0.0") == LOOPBACK_HOSTS
    assert refused(lambda: check_host("evil.example.com", hosts_of("127.0.0.1"))) == 421

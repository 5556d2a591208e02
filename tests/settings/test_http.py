"""The settings of the HTTP interface: safe as they are, and refused with a sentence where they cannot be meant."""

import pytest

from ade.accounts.model import IDLE_MS, MAX_SESSION_MS, UnsafeBind
from ade.server.addresses import check_bind
from ade.server.idempotency import RETENTION_MS
from ade.server.rate_limits import WEB_RATES, read_rates
from ade.server.request_body import USUAL
from ade.settings import Settings, SettingsError, load
from ade.settings.sections import HttpSettings
from tests.domain import TrafficClass


def refused(**fields: object) -> str:
    flags = {f"http.{name}": value for name, value in fields.items()}
    with pytest.raises(SettingsError) as caught:
        load(files=[], env={}, flags=flags)
    return str(caught.value)


def test_without_a_word_it_is_for_this_machine_and_asks_who_one_is() -> None:
    http = Settings().http

    assert (http.host, http.port, http.auth) == ("127.0.0.1", 8411, "required")
    check_bind(http.host, http.auth)


def test_the_defaults_are_those_of_the_rules() -> None:
    http = HttpSettings()

    assert read_rates(http.rates()) == WEB_RATES
    assert http.body_limit_kb * 1024 == USUAL.body_bytes
    assert (http.session_idle_s * 1000, http.session_lasts_s * 1000) == (IDLE_MS, MAX_SESSION_MS)
    assert http.key_retention_s * 1000 == RETENTION_MS


def test_a_rate_can_be_switched_off() -> None:
    http = HttpSettings(read_rate="none", work_rate="5/10s")

    rates = read_rates(http.rates())
    assert TrafficClass.READ not in rates
    assert rates[TrafficClass.WORK] == (5, 10_000)
    with pytest.raises(ValueError, match="not a rate"):
        read_rates({"read": "often"})


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("port", 70_000, "http.port = 70000 does not fit"),
        ("auth", "maybe", "http.auth = 'maybe' does not fit"),
        ("host", "127.0.0.1:80/x", "without a port"),
        ("host", "two words", "without a port"),
        ("read_rate", "600", "http.read_rate = '600' does not fit: write a count and a period, such as 100/s, or none"),
        ("lock_rate", "0/s", "http.lock_rate = '0/s' does not fit"),
        ("allowed_hosts", "https://ade.example.org", "'https://ade.example.org' is no name of a host"),
        ("allowed_hosts", "ade.example.org:8411", "without scheme and port"),
        ("trusted_proxies", "10.0.0.0/8, proxy", "'proxy' is no address and no network"),
        ("trusted_proxies", "10.0.0.7/8", "'10.0.0.7/8' is no address and no network"),
        ("session_idle_s", 5, "http.session_idle_s = 5 does not fit"),
        ("key_retention_s", 1, "http.key_retention_s = 1 does not fit"),
        ("heartbeat_s", 3_600, "http.heartbeat_s = 3600 does not fit"),
        ("body_limit_kb", 0, "http.body_limit_kb = 0 does not fit"),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(name: str, value: object, wrong: str) -> None:
    assert wrong in refused(**{name: value})


def test_a_session_cannot_idle_longer_than_it_lasts() -> None:
    sentence = refused(session_idle_s=7_200, session_lasts_s=3_600)

    assert "http.session_idle_s (7200.0) must not exceed http.session_lasts_s (3600.0)" in sentence


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "ade.example.org"])
def test_without_authentication_nobody_else_may_reach_it(host: str) -> None:
    assert f"http.auth (off) does not go with http.host ({host})" in refused(host=host, auth="off")
    with pytest.raises(UnsafeBind, match=r"set http\.auth to required"):
        check_bind(host, "off")
    check_bind(host)
    load(files=[], env={}, flags={"http.host": host})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_this_machine_it_may_be_left_out(host: str) -> None:
    check_bind(host, "off")
    assert load(files=[], env={}, flags={"http.host": host, "http.auth": "off"}).settings.http.auth == "off"


def test_names_and_networks_come_from_the_environment_too() -> None:
    env = {"ADE_HTTP__ALLOWED_HOSTS": "ade.example.org, *.example.net", "ADE_HTTP__TRUSTED_PROXIES": "10.0.0.0/8,::1"}

    http = load(files=[], env=env).settings.http
    assert http.allowed_hosts == ("ade.example.org", "*.example.net")
    assert http.trusted_proxies == ("10.0.0.0/8", "::1")

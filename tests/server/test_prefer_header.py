"""Prefer and RateLimit: what somebody would like, and how often he may."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ade.server.etags import Preference, read_prefer
from ade.server.rate_limits import WEB_RATES, RateLimitRule, check_rate, limit_of, rate_headers
from tests.depth import examples
from tests.domain import RATES, RateClass, RequestRefused, TrafficClass


@pytest.mark.parametrize(
    ("header", "wait_s", "is_async"),
    [
        (None, None, False),
        ("", None, False),
        ("wait=30", 30, False),
        ("Wait = 5 , RESPOND-ASYNC", 5, True),
        ('respond-async; x="a,b", wait="7"; y', 7, True),
        ("wait=10, wait=20", 10, False),  # the first counts
        ("wait=600", 60, False),
        ("wait=0", 0, False),
        ("wait=-1", None, False),
        ("wait=soon, respond-async", None, True),
        ("wait", None, False),
        ("handling=lenient,, wait=3", 3, False),
        ("respond-async, @@@, wait=3", None, True),  # up to what cannot be read
        ("wait=1.5", None, False),
        ("wait=" + "9" * 30, None, False),
    ],
)
def test_wishes_are_read(header: str | None, wait_s: int | None, is_async: bool) -> None:
    assert read_prefer(header) == Preference(wait_s=wait_s, is_async=is_async)


def test_it_is_told_what_is_really_done() -> None:
    assert read_prefer("wait=600, respond-async").applied == "wait=60, respond-async"
    assert read_prefer("return=minimal").applied is None


@settings(max_examples=examples(100))
@given(st.text('wait=respond-async;," \t\\1', max_size=200))
def test_no_header_is_a_trap(header: str) -> None:
    wait_s = read_prefer(header * 10).wait_s
    assert wait_s is None or 0 <= wait_s <= 60


def test_long_runs_of_spaces_take_no_time() -> None:
    assert read_prefer("a" + " ;" * 300 + " " * 500 + "@") == Preference()


READS = RateLimitRule(name=TrafficClass.READ, count=600, period_ms=60_000)


def test_who_is_let_through_learns_the_policy() -> None:
    check_rate(READS, 0)

    assert rate_headers(READS, 0) == {"RateLimit-Policy": '"read";q=600;w=60'}
    assert rate_headers(READS, 0, remaining=5)["RateLimit"] == '"read";r=5'


def test_who_is_refused_learns_when_to_come_again() -> None:
    with pytest.raises(RequestRefused) as refused:
        check_rate(READS, 1_200)

    assert refused.value.problem.status == 429
    assert refused.value.problem.headers == rate_headers(READS, 1_200)
    assert rate_headers(READS, 1_200) == {
        "RateLimit-Policy": '"read";q=600;w=60',
        "RateLimit": '"read";r=0;t=2',
        "Retry-After": "2",
    }


def test_every_class_has_its_rate_but_probes() -> None:
    assert set(TrafficClass) - set(WEB_RATES) == {TrafficClass.PROBE}
    assert limit_of(TrafficClass.PROBE) is None
    login = limit_of(TrafficClass.LOGIN)
    assert login is not None
    assert (login.count, login.period_ms) == RATES[RateClass.LOGIN]
    assert login.key("ada") == f"{RateClass.LOGIN}:ada"

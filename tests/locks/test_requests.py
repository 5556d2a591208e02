"""What may be asked for: whatever is wrong is told by name, whoever asks."""

import math
from typing import Any

import pytest

from ade.errors import InvalidLock
from ade.locks.model import LockMode, LockRequest, LockSpec, lock_specs_of, merged, read, write
from ade.locks.requests import NO_TTL, leased, ttl_ms_of, validate_request, wait_ms_of

NO_SPANS: list[Any] = [-1, math.nan, math.inf, -math.inf, 10**400, "30", True, [1]]


@pytest.mark.parametrize("seconds", NO_SPANS)
def test_a_lease_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(InvalidLock, match="ttl"):
        ttl_ms_of(seconds)


@pytest.mark.parametrize("seconds", NO_SPANS)
def test_and_so_is_a_wait(seconds: Any) -> None:
    with pytest.raises(InvalidLock, match="wait"):
        wait_ms_of(seconds)


def test_spans_are_milliseconds_inside() -> None:
    assert (ttl_ms_of(1.5), wait_ms_of(0), wait_ms_of(0.25), wait_ms_of(None)) == (1500, 0, 250, None)


@pytest.mark.parametrize("one", [5, None, ["repo:app"], ("repo:app", LockMode.SHARED), b"repo:app"])
def test_a_resource_is_named_as_text_or_by_read_or_write(one: Any) -> None:
    with pytest.raises(InvalidLock, match="as text"):
        lock_specs_of([one])


@pytest.mark.parametrize("spec", [read(5), LockSpec("", LockMode.SHARED), write("a{b}"), write("x" * 513)])  # type: ignore[arg-type]  # wrong on purpose
def test_a_name_is_text_of_some_length_without_braces(spec: LockSpec) -> None:
    with pytest.raises(InvalidLock, match="resource"):
        merged([spec])


def test_a_mode_is_one_of_two() -> None:
    """One that only looks like a mode would conflict with nothing."""
    with pytest.raises(InvalidLock, match="read"):
        merged([LockSpec("repo:app", "exclusive")])  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    "wrong", [{"owner": ""}, {"owner": 5}, {"namespace": 5}, {"namespace": "a b"}, {"purpose": 5}, {"purpose": ""}]
)
def test_names_and_purposes_are_text(wrong: dict[str, Any]) -> None:
    usual = {"id": "x", "owner": "ada", "scope": "x", "wanted": [write("repo:app")]}
    with pytest.raises(InvalidLock, match=next(iter(wrong))):
        validate_request(**(usual | wrong))


def wanting(ttl: float | None) -> LockRequest:
    return validate_request(
        id="r", owner="o", scope="s", wanted=[("db:main", LockMode.EXCLUSIVE)], ttl_ms=ttl_ms_of(ttl)
    )


def test_a_request_without_a_lease_gets_the_usual_one() -> None:
    assert wanting(None).ttl_ms == NO_TTL
    assert leased(wanting(None), usual_ms=7_000, longest_ms=9_000).ttl_ms == 7_000
    assert leased(wanting(None), usual_ms=7_000, longest_ms=5_000).ttl_ms == 5_000
    assert leased(wanting(8), usual_ms=7_000, longest_ms=9_000).ttl_ms == 8_000
    with pytest.raises(InvalidLock, match="not 0 s"):
        wanting(0)


def test_a_lease_that_is_longer_than_any_may_be_is_refused_with_the_bound() -> None:
    with pytest.raises(InvalidLock, match=r"at most 9 s here \(lock.max_ttl_s\), not 9.5 s"):
        leased(wanting(9.5), usual_ms=7_000, longest_ms=9_000)

"""Priorities by name, and delays between attempts by the name of a preset or as a list."""

from typing import Any

import pytest

from ade import Ade, Backoff, TaskFailed
from ade.errors import InvalidTask
from ade.failures import BACKOFFS
from ade.settings import load
from ade.testing import harness
from tests.domain import PRIORITIES, admit, read_priority
from tests.tasks.factories import MIDDLE, NOW, new_task


@pytest.mark.parametrize(("name", "number"), [("urgent", 1), ("high", 3), ("normal", 5), ("low", 7)])
def test_a_priority_has_a_name(name: str, number: int) -> None:
    assert read_priority(name) == read_priority(number) == PRIORITIES[name] == number


@pytest.mark.parametrize("priority", ["asap", "", "3", "URGENT", 10, -1, True, None, 3.0, ["high"]])
def test_an_unknown_priority_is_refused_with_the_names_that_exist(priority: object) -> None:
    with pytest.raises(InvalidTask, match=r"urgent \(1\), high \(3\), normal \(5\), low \(7\)"):
        read_priority(priority)


def declared(backoff: Any) -> Backoff:
    @Ade("memory://").task(backoff=backoff)
    async def wobble() -> None: ...

    found = wobble.handler.definition.backoff
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("backoff", "minutes"),
    [
        ("steps", [1, 5, 15, 15, 15]),
        ("1m,5m,15m", [1, 5, 15, 15, 15]),
        ("90s, 1h", [1.5, 60, 60]),
        ("2m", [2, 2, 2]),
        ("exponential", [1 / 60, 2 / 60, 4 / 60, 8 / 60]),
    ],
)
def test_delays_between_attempts_have_names_or_are_listed(backoff: str, minutes: list[float]) -> None:
    delays = [declared(backoff).delay_ms(failures, MIDDLE) for failures in range(1, len(minutes) + 1)]
    assert delays == [round(each * 60_000) for each in minutes]


def test_steps_vary_by_the_jitter() -> None:
    steps = BACKOFFS["steps"]
    assert [steps.delay_ms(2, randomness) for randomness in (0, MIDDLE)] == [270_000, 300_000]


@pytest.mark.parametrize("backoff", ["linear", "", "1m,,5m", "5", "1 week", "-1m", "1m;5m", "9" * 99, 5, None, ["1m"]])
def test_other_words_for_delays_are_refused(backoff: object) -> None:
    with pytest.raises(InvalidTask, match="exponential or steps, or delays such as 30s or 1m,5m,15m"):
        declared(backoff)


@pytest.mark.parametrize("steps", [(-1,), (10**18,), (1,) * 1_001])
def test_steps_have_bounds(steps: tuple[int, ...]) -> None:
    with pytest.raises(InvalidTask, match="steps"):
        admit(new_task(backoff=Backoff(steps_ms=steps)), now=NOW)


async def test_an_app_declares_both_and_waits_one_and_five_minutes() -> None:
    app = Ade("memory://")

    @app.task(priority="high", backoff="steps", max_attempts=3)
    async def wobble() -> None:
        raise RuntimeError("it wobbled")

    async with harness(app) as kit:
        handle = await wobble.with_options(priority="low").enqueue()
        assert (await handle.get()).priority == 7
        assert (await (await wobble.enqueue()).get()).priority == 3
        delays = []
        for _ in range(2):
            await kit.drain()
            wait_ms = (await handle.get()).run_after - kit.clock.now()
            delays.append(wait_ms / 60_000)
            await kit.advance(wait_ms / 1_000)
        assert delays == [pytest.approx(1, rel=0.1), pytest.approx(5, rel=0.1)]
        await kit.drain()
        with pytest.raises(TaskFailed):
            await handle.result()
        with pytest.raises(InvalidTask, match="'asap'"):
            wobble.with_options(priority="asap")  # type: ignore[arg-type] # the mistake in question


def test_the_settings_have_steps_for_all_tasks() -> None:
    settings = load(flags={"task.backoff_steps_s": [60, 300, 900]}, files=[]).settings
    assert settings.task.backoff == BACKOFFS["steps"]

"""`ade sweep`, and the demo app that `ade up` shows ADE with."""

import asyncio
from pathlib import Path

import pytest

from ade import Status, demo
from ade.testing import harness
from tests.cli.conftest import Call, work
from tests.domain import TaskQuery


def test_one_round_of_all_duties(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    work()
    done = shop("sweep", "--once", "--json").json["done"]

    assert {"settle", "schedules", "prune", "events", "workers", "checkpoint"} <= done.keys()


def test_a_duty_that_fails_is_named_and_told_without_a_traceback(
    shop: Call, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop("enqueue", "pack", "item=lamp")
    shop("audit", "verify")
    (folder / "shop.audit.db").unlink()  # what was copied is gone, and the log remembers
    answer = shop("sweep", "--once", "--json")

    assert (answer.code, answer.json["failed"]) == (1, ["audit"])
    assert "settle" in answer.json["done"]
    [told] = [record for record in caplog.records if record.getMessage().startswith("duty.failed")]
    assert (bool(told.exc_info), vars(told)["fields"]["code"]) == (False, "audit_broken")


def test_a_sweep_fails_what_is_of_no_use_any_more(shop: Call) -> None:
    task_id = shop("enqueue", "pack", "item=lamp", "--deadline", "1ms").out.strip()
    while shop("explain", task_id, "--json").json["reasons"][0]["code"] != "deadline_passed":
        pass
    shop("sweep", "--once")

    assert shop("show", task_id, "--json").json["error"]["kind"] == "deadline_passed"


def test_the_demo_does_what_it_says() -> None:
    """Its first tasks, run on a clock that is moved: every one ends as its description promises."""

    async def story() -> dict[str, list[Status]]:
        async with harness(demo.ade) as kit:
            assert await demo.seed() == 7
            await kit.finish(within=120)
            tasks = (await kit.stores.tasks.find(TaskQuery(limit=100))).tasks
            ended: dict[str, list[Status]] = {}
            for task in tasks:
                ended.setdefault(task.name, []).append(task.status)
            return ended

    usual = asyncio.sleep

    async def hurried(seconds: float) -> None:
        await usual(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", hurried)
        ended = asyncio.run(story())

    assert ended.pop("tell_the_time") != []
    assert ended.pop("return_parcel") == [Status.FAILED]
    assert {status for statuses in ended.values() for status in statuses} == {Status.COMPLETED}
    assert ended.keys() == {"brew_tea", "count_words", "count_primes", "deliver_parcel"}


@pytest.mark.parametrize(("below", "primes"), [(0, 0), (2, 0), (3, 1), (100, 25), (1000, 168)])
def test_primes_are_counted_rightly(below: int, primes: int) -> None:
    assert demo.count_primes(below) == primes


def test_words_are_counted_rightly() -> None:
    assert demo.count_words("A task is a task.", most=2) == {"a": 2, "task": 2}

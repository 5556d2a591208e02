"""A short campaign of kills (`make campaign` runs a long one), and proof that it would see what must never be."""

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, structs

from ade import Status, Task
from tests.domain import Event
from tests.faults.campaign.app import GENEROUS
from tests.faults.campaign.course import run
from tests.faults.campaign.history import Story
from tests.faults.campaign.judgement import Evidence, checks_of
from tests.faults.campaign.plan import SQLITE, Plan
from tests.faults.campaign.report import shown
from tests.faults.campaign.trails import Acknowledgement, Run, Trail, acknowledgements
from tests.servers.plugin import binary_or_skip


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.parametrize("store", [SQLITE, "valkey"])
async def test_sixty_kills_among_fifteen_hundred_tasks_lose_nothing(tmp_path: Path, store: str) -> None:
    if store != SQLITE:
        binary_or_skip(store)
    seed = random.SystemRandom().randrange(1 << 32)
    plan = Plan(folder=str(tmp_path), seed=seed, store=store, kills=60, in_flight=1_500, drain_s=240.0)
    said: list[str] = [f"seed {seed}"]

    verdict = await run(plan, said.append)

    assert verdict.holds, "\n".join([*said, shown(verdict)])
    assert verdict.facts["kills"] == 60
    assert verdict.facts["takeovers"] > 0


def test_what_was_written_in_mid_line_when_the_writer_died_is_not_counted(tmp_path: Path) -> None:
    Trail(tmp_path, "acknowledged", "p").write(("enqueued", "0-1", "one"), ("enqueued", "0-2", "two"))
    path = tmp_path / "p.acknowledged"
    path.write_bytes(path.read_bytes() + b"enqueued 0-3 thr")
    assert [line.task_id for line in acknowledgements(tmp_path)] == ["one", "two"]

    Trail(tmp_path, "acknowledged", "p").write(("enqueued", "0-3", "three"))

    assert [line.task_id for line in acknowledgements(tmp_path)] == ["one", "two", "three"]


def history(*steps: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(type=f"task.{kind}", at=0, seq=seq, payload=payload) for seq, (kind, payload) in enumerate(steps, 1)]


def step(kind: str, run_id: str = "", attempt: int = 1) -> tuple[str, dict[str, Any]]:
    return kind, {"run_id": run_id, "attempt": attempt}


CREATED, CLAIMED, SUCCEEDED = step("created"), step("claimed", "a"), step("succeeded", "a")


@pytest.mark.parametrize(
    "steps",
    [
        (CREATED, CLAIMED, SUCCEEDED),
        (CREATED, CLAIMED, step("stalled", "a"), step("claimed", "b", 2), step("reclaimed"), step("succeeded", "b")),
        (CREATED, CLAIMED, step("retry_scheduled", "a"), step("claimed", "b", 2), step("succeeded", "b")),
        (CREATED, CLAIMED, step("released", "a"), step("claimed", "b", 1), step("succeeded", "b")),
        (CREATED, CLAIMED, step("stalled", "a"), SUCCEEDED),
        (CREATED, CLAIMED, step("cancelled")),
        (
            CREATED,
            CLAIMED,
            step("failed", "a"),
            step("dlq"),
            step("replayed"),
            step("claimed", "b"),
            step("succeeded", "b"),
        ),
    ],
)
def test_a_story_in_which_all_is_well(steps: tuple[tuple[str, dict[str, Any]], ...]) -> None:
    story = Story("t").tell(history(*steps))

    assert story.wrongs == []
    assert story.is_final


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ((CREATED, CLAIMED, step("claimed", "b", 2)), "run a held it"),
        ((CREATED, CLAIMED, SUCCEEDED, SUCCEEDED), "it had ended as completed"),
        ((CREATED, CLAIMED, SUCCEEDED, step("claimed", "b", 2)), "it had ended as completed"),
        ((CREATED, CLAIMED, step("failed", "a"), SUCCEEDED), "it had ended as failed"),
        ((CREATED, CLAIMED, step("released", "a"), SUCCEEDED), "but nobody held the task"),
        ((CREATED, CLAIMED, step("stalled", "a"), step("succeeded", "b")), "but nobody held the task"),
        (
            (CREATED, CLAIMED, step("stalled", "a"), step("claimed", "b", 2), SUCCEEDED),
            "it is of run a, but b held the task",
        ),
        ((CREATED, CLAIMED, step("stalled", "a"), step("claimed", "a", 2)), "had claimed it before"),
        ((CREATED, CLAIMED, step("stalled", "a"), step("claimed", "b", 1)), "by the log it should be 2"),
        ((CREATED, CLAIMED, SUCCEEDED, step("replayed")), "it was completed"),
        ((CREATED, CREATED), "it existed already"),
    ],
)
def test_a_story_in_which_something_must_never_have_happened(
    steps: tuple[tuple[str, dict[str, Any]], ...], complaint: str
) -> None:
    wrongs = Story("t").tell(history(*steps)).wrongs

    assert any(complaint in wrong for wrong in wrongs), wrongs


DONE = Task(
    id="t",
    name="charge",
    status=Status.COMPLETED,
    attempt=1,
    max_attempts=GENEROUS,
    idempotency_key="0-1",
    result=Raw(b"1"),
)
SOUND = Evidence(
    tasks={"t": DONE},
    stories={"t": Story("t").tell(history(CREATED, CLAIMED, SUCCEEDED))},
    acknowledged=[Acknowledgement("enqueued", "0-1", "t")],
    runs=[Run("began", "t", 1, 1, "a"), Run("ended", "t", 1, 1, "a")],
    payments=["0-1"],
)
UNFINISHED = Story("t").tell(history(CREATED, CLAIMED))
OFTEN = structs.replace(DONE, max_attempts=2, name="fragile")
TIRED = Story("t", most_attempts=3, attempt=1, status=Status.COMPLETED, finals=1)


def test_sound_evidence_is_found_sound() -> None:
    assert [check for check in checks_of(SOUND) if check.wrongs] == []


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"tasks": {}}, "every acknowledged task exists"),
        ({"tasks": {"t": DONE, "u": structs.replace(DONE, id="u")}}, "one task for each idempotency key"),
        (
            {"acknowledged": [Acknowledgement("enqueued", "0-2", "t")]},
            "every request was answered with its own task",
        ),
        ({"tasks": {"t": structs.replace(DONE, status=Status.RUNNING)}}, "every task is final"),
        ({"stories": {"t": UNFINISHED}}, "records say what their events say"),
        ({"tasks": {"t": OFTEN}, "stories": {"t": TIRED}}, "no task has run more often than it may"),
        (
            {"tasks": {"t": structs.replace(DONE, status=Status.FAILED)}},
            "tasks with attempts to spare do not die of kills",
        ),
        ({"acknowledged": [Acknowledgement("cancelled", "0-1", "t")]}, "an acknowledged cancellation stays"),
        ({"runs": SOUND.runs[:1]}, "nothing ran without a lease, nothing ended without a run"),
        ({"runs": [*SOUND.runs, *SOUND.runs]}, "nothing ran without a lease, nothing ended without a run"),
        (
            {"runs": [*SOUND.runs, Run("began", "t", 1, 2, "b")]},
            "nothing ran without a lease, nothing ended without a run",
        ),
        ({"payments": ["0-1", "0-1"]}, "a side effect under one key happened once at most"),
        ({"payments": []}, "a completed charge was paid"),
    ],
)
def test_a_campaign_sees(changed: dict[str, Any], what: str) -> None:
    wrong = [check.what for check in checks_of(structs.replace(SOUND, **changed)) if check.wrongs]

    assert what in wrong

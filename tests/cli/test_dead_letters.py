"""`ade retry` and `ade dlq`: failed tasks, grouped, run again or put away."""

import pytest

from tests.cli.conftest import Call, work


@pytest.fixture
def failed(shop: Call) -> list[str]:
    """Three letters that failed in one way, and one wobbly task that failed in another."""
    ids = [shop("enqueue", "send", f"address=nowhere {number}").out.strip() for number in range(3)]
    ids.append(shop("enqueue", "wobble", "--max-attempts", "1").out.strip())
    work()
    return ids


def fingerprints(shop: Call) -> dict[str, str]:
    return {group["name"]: group["fingerprint"] for group in shop("dlq", "list", "--json").json["items"]}


def statuses(shop: Call) -> list[str]:
    return [task["status"] for task in shop("tasks", "--json", "--oldest-first").json["items"]]


def test_the_same_mistake_is_one_group(shop: Call, failed: list[str]) -> None:
    groups = shop("dlq", "list", "--json").json["items"]
    text = shop("dlq", "list").out

    assert [(group["name"], group["count"]) for group in groups] == [("send", 3), ("wobble", 1)]
    assert groups[0]["newest"][0] in failed
    assert "Unrecoverable: there is no address <text>" in text


def test_a_group_can_be_looked_into(shop: Call, failed: list[str]) -> None:
    shown = shop("dlq", "show", fingerprints(shop)["send"], "--json").json["items"]

    assert {task["id"] for task in shown} == set(failed[:3])
    for command in (
        ["show", "abc"],
        ["replay", "--fingerprint", "abc"],
        ["discard", "--fingerprint", "abc", "--reason", "x"],
    ):
        answer = shop("dlq", *command, "--json")
        assert (answer.code, answer.error["code"]) == (3, "unknown_fingerprint")
        assert "'abc'" in answer.error["message"]


def test_of_a_large_group_the_newest_are_shown_and_the_oldest_replayed(shop: Call, failed: list[str]) -> None:
    """Who waits for another is younger than it, so that one must go first."""
    shown = shop("dlq", "show", fingerprints(shop)["send"], "--limit", "2", "--json").json["items"]
    replayed = shop("dlq", "replay", "--name", "send", "--limit", "1", "--yes", "--json").json

    assert [task["id"] for task in shown] == [failed[2], failed[1]]
    assert replayed["changed"] == [failed[0]]


def test_no_dead_letters_is_good_news(shop: Call) -> None:
    assert shop("dlq", "list").err == "No dead letters.\n"


def test_retry_gives_fresh_attempts(shop: Call, failed: list[str]) -> None:
    answer = shop("retry", failed[3], "--json")

    assert (answer.json["status"], answer.json["generation"], answer.json["attempt"]) == ("pending", 2, 0)
    assert shop("retry", failed[3]).code == 4


def test_retry_with_corrected_arguments(shop: Call, failed: list[str]) -> None:
    misfit = shop("retry", failed[0], "--args", '{"adress": "Station Road"}', "--json")
    assert (misfit.code, misfit.error["code"]) == (2, "invalid_arguments")

    assert shop("retry", failed[0], "--args", '{"address": "Station Road"}').code == 0
    work()
    assert shop("wait", failed[0]).out == '"sent to Station Road"\n'


def test_arguments_can_be_changed_in_an_editor(shop: Call, failed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "sed -i 's/nowhere 0/Hill Street/'")
    assert shop("retry", failed[0], "--edit").code == 0

    assert shop("show", failed[0], "--json").json["args"] == {"address": "Hill Street"}


def test_an_editor_that_leaves_nonsense_changes_nothing(
    shop: Call, failed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "sed -i 's/{/</'")
    answer = shop("retry", failed[0], "--edit", "--json")

    assert (answer.code, answer.error["code"]) == (2, "invalid_arguments")
    assert statuses(shop)[0] == "failed"


def test_a_group_is_replayed_after_a_question(shop: Call, failed: list[str]) -> None:
    group = fingerprints(shop)["send"]
    asked = shop("dlq", "replay", "--fingerprint", group)
    assert "3 dead letters would be replayed. Add --yes to continue." in asked.err

    assert shop("dlq", "replay", "--fingerprint", group, "--yes").out == "Replayed 3 dead letters.\n"
    assert statuses(shop) == ["pending", "pending", "pending", "failed"]


def test_part_of_a_group_can_be_replayed(shop: Call, failed: list[str]) -> None:
    answer = shop("dlq", "replay", "--name", "send", "--limit", "2", "--yes", "--json")

    assert len(answer.json["changed"]) == 2
    assert statuses(shop).count("pending") == 2


def test_all_can_be_replayed_and_one_by_id(shop: Call, failed: list[str]) -> None:
    assert shop("dlq", "replay", failed[0]).lines == [f"{failed[0]}  pending  send  generation 2"]
    assert shop("dlq", "replay", "--all", "--yes").out == "Replayed 3 dead letters.\n"
    assert shop("dlq", "replay", "--all", "--yes").err == "No dead letter matches.\n"


def test_discarded_letters_stay_on_record_with_the_reason(shop: Call, failed: list[str]) -> None:
    assert shop("dlq", "discard", "--name", "send").code == 2  # no reason given
    answer = shop("dlq", "discard", "--name", "send", "--reason", "moved house", "--yes")

    assert answer.out == "Discarded 3 dead letters.\n"
    assert list(fingerprints(shop)) == ["wobble"]
    shown = shop("show", failed[0], "--json").json
    assert (shown["status"], shown["discarded"], shown["reason"]) == ("failed", True, "moved house")


def test_one_letter_is_discarded_by_id(shop: Call, failed: list[str]) -> None:
    assert shop("dlq", "discard", failed[3], "--reason", "known").lines == [f"{failed[3]}  discarded  wobble"]


@pytest.mark.parametrize("arguments", [[], ["--all", "--name", "send"], ["abcdef12", "--all"]])
def test_what_is_meant_must_be_said(shop: Call, arguments: list[str]) -> None:
    assert shop("dlq", "replay", *arguments).code == 2

"""`ade config` and `ade features`: what is changed for all processes while they run."""

import pytest

from tests.cli.conftest import Call


def test_a_setting_of_the_store_is_shown_with_its_origin(shop: Call) -> None:
    assert shop("config", "set", "risk.high", "60", "--as", "Ada").out == "risk.high = 60.0 (store)\n"

    shown = shop("config", "show", "--origin", "--json").json
    assert shown["risk.high"] == {"value": 60, "origin": "store"}
    assert shown["risk.medium"] == {"value": 25, "origin": "default"}
    assert "risk.high" in shop("config", "show", "--changed", "--json").json
    assert shop("config", "get", "risk.high").out == "60.0\n"
    assert shop("config", "get", "worker.batch", "--json").json == {
        "name": "worker.batch",
        "value": 100,
        "origin": "default",
    }


def test_a_setting_is_taken_back(shop: Call) -> None:
    shop("config", "set", "lock.default_ttl_s", "60")

    unset = shop("config", "unset", "lock.default_ttl_s", "--json").json
    assert (unset["name"], unset["value"], unset["origin"]) == ("lock.default_ttl_s", 30, "default")
    assert shop("config", "get", "lock.default_ttl_s", "--json").json == unset
    told = shop("events", "tail", "--after", "0", "--json").json_lines
    assert [(event["type"], event["payload"]["new"]) for event in told] == [
        ("setting.changed", 60),
        ("setting.changed", None),
    ]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("config", "set", "lock.max_ttl_s", "7200"), 2, "invalid_setting"),
        (("config", "set", "risk.medium", "99"), 2, "invalid_setting"),
        (("config", "set", "worker.batch", "5"), 3, "unknown_setting"),
        (("config", "get", "risk.hihg"), 3, "unknown_setting"),
        (("config", "unset", "nothing"), 3, "unknown_setting"),
        (("features", "enable", "nothing"), 3, "unknown_setting"),
        (("features", "unset", "nothing"), 3, "unknown_setting"),
    ],
)
def test_what_cannot_be_set_is_refused(shop: Call, words: tuple[str, ...], code: int, error: str) -> None:
    answer = shop(*words, "--json")

    assert (answer.code, answer.error["code"]) == (code, error)


def test_settings_are_shown_without_a_store(ade: Call) -> None:
    answer = ade("config", "show", "--json", "--store", "sqlite:///nowhere.db")

    assert answer.code == 0
    assert answer.json["risk.high"] == 50


def test_a_store_that_cannot_be_used_does_not_hide_the_settings(ade: Call) -> None:
    answer = ade("config", "show", "--store", "sqlite:///shop.py")

    assert answer.code == 0
    assert "could not be read" in answer.err


def features(shop: Call) -> dict[str, tuple[bool, str]]:
    """Whether each feature is on, and where that comes from."""
    return {one["name"]: (one["is_on"], one["origin"]) for one in shop("features", "--json").json["items"]}


def test_features_are_listed_and_switched(shop: Call) -> None:
    before = features(shop)
    assert before["deadlock_detection"] == (True, "default")
    assert before["auto_approve_low_risk"] == (False, "default")

    assert shop("features", "enable", "auto_approve_low_risk", "--as", "Ada").out == "auto_approve_low_risk: on\n"
    disabled = shop("features", "disable", "deadlock_detection", "--json").json
    assert (disabled["name"], disabled["is_on"]) == ("deadlock_detection", False)
    assert shop("features").lines[1].split()[:3] == ["auto_approve_low_risk", "on", "store"]
    assert shop("features", "unset", "deadlock_detection").out == "deadlock_detection: on (default)\n"
    told = shop("events", "tail", "--after", "0", "--json").json_lines
    assert told[0]["payload"] == {"name": "auto_approve_low_risk", "old": None, "new": True}
    assert told[0]["actor"] == "ada"


def test_a_feature_that_a_file_has_a_word_on_is_decided_by_the_store(
    shop: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADE_LOCKS__DEADLOCK_DETECTION", "false")
    assert features(shop)["deadlock_detection"] == (False, "settings")
    assert "ADE_LOCKS__DEADLOCK_DETECTION" in shop("features").out

    shop("features", "enable", "deadlock_detection")

    assert features(shop)["deadlock_detection"] == (True, "store")
    shown = shop("config", "show", "--origin", "--json").json
    assert shown["locks.deadlock_detection"] == {"value": True, "origin": "store"}

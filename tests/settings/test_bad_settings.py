"""A wrong setting stops the start with a sentence that says which one, from where, and what is right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ade.errors import AdeError
from ade.settings import Settings, SettingsError, load, standard_files
from ade.settings.sections import LockSettings, StoreSettings, WorkerSettings


def complaint(
    tmp_path: Path,
    text: str = "",
    *,
    env: dict[str, str] | None = None,
    flags: dict[str, object] | None = None,
) -> str:
    file = tmp_path / "ade.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(files=[file], env=env or {}, flags=flags)
    return str(caught.value)


def test_the_error_has_a_code_of_its_own() -> None:
    assert issubclass(SettingsError, AdeError)
    assert SettingsError.code == "bad_settings"


@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("[worker]\nconcurency = 5\n", "worker.concurency", "worker.concurrency"),
        ("[wroker]\nconcurrency = 5\n", "wroker.concurrency", "worker.concurrency"),
        ("[worker.leases]\nseconds = 5\n", "worker.leases", "worker.lease_s"),
        ("concurrency = 5\n", "concurrency", "worker.concurrency"),
        ("[stores]\n", "stores", "store"),
    ],
)
def test_an_unknown_key_names_the_file_and_the_nearest_known_one(
    tmp_path: Path, text: str, unknown: str, nearest: str
) -> None:
    assert complaint(tmp_path, text) == (
        f"{tmp_path / 'ade.toml'}: there is no setting {unknown}. Did you mean {nearest}?"
    )


def test_a_key_like_no_other_is_answered_with_the_sections(tmp_path: Path) -> None:
    sections = ", ".join(Settings.__struct_fields__)
    assert f"Sections are {sections}." in complaint(tmp_path, "qqqq = 1")


def test_unknown_variables_and_flags_are_named_too(tmp_path: Path) -> None:
    assert complaint(tmp_path, env={"ADE_STORE__PATH": "x"}).startswith("ADE_STORE__PATH: there is no setting")
    assert complaint(tmp_path, flags={"store.ulr": "x"}) == (
        "flag: there is no setting store.ulr. Did you mean store.url?"
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("concurrency = '5'", "Expected `int`, got `str`"),
        ("concurrency = true", "Expected `int`, got `bool`"),
        ("concurrency = 0", "Expected `int` >= 1"),
        ("concurrency = 1.5", "Expected `int`, got `float`"),
        ("queues = 'mail'", "Expected `array`, got `str`"),
        ("queues = [1]", "Expected `str`, got `int`"),
        ("lease_s = '30'", "Expected `float`, got `str`"),
        ("lease_s = -1", "Expected `float` > 0"),
        ("lease_s = inf", "Expected `float` <= 315360000"),
        ("lease_s = nan", "Expected `float`"),
        ("lease_guard = 1", "Expected `bool`, got `int`"),
    ],
)
def test_a_value_of_the_wrong_type_names_its_origin(tmp_path: Path, line: str, reason: str) -> None:
    said = complaint(tmp_path, f"[worker]\n{line}\n")

    assert said.startswith(f"{tmp_path / 'ade.toml'}: worker.{line.partition(' ')[0]} = ")
    assert reason in said


def test_a_wrong_variable_or_flag_names_its_origin(tmp_path: Path) -> None:
    env = {"ADE_WORKER__BATCH": "many"}
    assert complaint(tmp_path, env=env).startswith("ADE_WORKER__BATCH: worker.batch = 'many' does not fit")
    assert complaint(tmp_path, flags={"worker.batch": True}).startswith("flag: worker.batch = True does not fit")


def test_a_wrong_choice_is_answered_with_the_choices(tmp_path: Path) -> None:
    said = complaint(tmp_path, "[store]\nsynchronous = 'off'\n")

    assert "full: " in said
    assert "normal: " in said


def test_a_section_must_be_a_table(tmp_path: Path) -> None:
    assert "write [worker] above its keys" in complaint(tmp_path, "worker = 5\n")


def test_a_file_that_is_no_toml_is_named_with_the_line(tmp_path: Path) -> None:
    said = complaint(tmp_path, "[worker]\nbatch == 5\n")

    assert said.startswith(f"{tmp_path / 'ade.toml'}: cannot be read as TOML")
    assert "line 2" in said


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda path: path.mkdir(), "ade.toml: cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "ade.toml: cannot be read as TOML"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], object], complaint: str) -> None:
    path = tmp_path / "ade.toml"
    make(path)

    with pytest.raises(SettingsError, match=complaint):
        load(files=[path], env={})


def test_a_home_that_is_closed_to_us_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tmp_path / ".config" / "ade" / "ade.toml" in standard_files({"HOME": str(tmp_path)})
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may look everywhere, so it is stood in for

    assert not any(path.is_relative_to(tmp_path) for path in standard_files({"HOME": str(tmp_path)}))


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("[worker]\nlease_s = 10\nheartbeat_s = 4\n", "worker.lease_s (10.0)", "worker.heartbeat_s (4.0)"),
        (
            "[store]\ninline_limit_kb = 2048\npayload_limit_mb = 1\n",
            "store.inline_limit_kb (2048)",
            "store.payload_limit_mb (1)",
        ),
        (
            "[task]\nbackoff_base_s = 60\nbackoff_cap_s = 30\n",
            "task.backoff_base_s (60.0)",
            "task.backoff_cap_s (30.0)",
        ),
        (
            "[events]\nretention_s = 60\n[sweep]\nretention_s = 61\n",
            "events.retention_s (60.0)",
            "sweep.retention_s (61.0)",
        ),
        (
            "[sweep]\nretention_s = 61\ninbox_retention_s = 60\n",
            "sweep.inbox_retention_s (60.0)",
            "sweep.retention_s (61.0)",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_both_named(tmp_path: Path, text: str, first: str, second: str) -> None:
    said = complaint(tmp_path, text)

    assert first in said
    assert second in said


def test_a_contradiction_says_where_each_side_came_from(tmp_path: Path) -> None:
    said = complaint(tmp_path, env={"ADE_WORKER__LEASE_S": "10"})

    assert said.endswith("(worker.lease_s from ADE_WORKER__LEASE_S, worker.heartbeat_s from default)")


def test_rules_between_fields_also_hold_for_settings_made_in_code() -> None:
    with pytest.raises(SettingsError, match=r"worker\.lease_s \(1\) must be at least three times"):
        Settings(worker=WorkerSettings(lease_s=1))

    with pytest.raises(SettingsError, match=r"store\.inline_limit_kb"):
        Settings(store=StoreSettings(inline_limit_kb=70_000))


def test_a_limit_may_be_met_exactly() -> None:
    assert Settings(worker=WorkerSettings(lease_s=15)).worker.lease_s == 15
    assert Settings(store=StoreSettings(inline_limit_kb=64 * 1024)).store.payload_limit_mb == 64


@pytest.mark.parametrize("rate", ["", "often", "0/s", "10/0s", "10/x", "-1/s", "10"])
def test_a_rate_that_is_none_names_its_origin(tmp_path: Path, rate: str) -> None:
    said = complaint(tmp_path, env={"ADE_LOCKS__ACQUIRE_RATE": rate})

    assert said.startswith(f"locks.acquire_rate = {rate!r} does not fit: write a count and a period, such as 100/s")
    assert said.endswith("(locks.acquire_rate from ADE_LOCKS__ACQUIRE_RATE)")


def test_a_rate_given_in_code_is_looked_at_too() -> None:
    with pytest.raises(SettingsError, match="acquire_rate"):
        Settings(locks=LockSettings(acquire_rate="fast"))


@pytest.mark.parametrize("given", ["GPU", "gpu,a b", ",".join(f"c{number}" for number in range(33))])
def test_capabilities_are_words_and_not_very_many(tmp_path: Path, given: str) -> None:
    said = complaint(tmp_path, env={"ADE_WORKER__CAPABILITIES": given})

    assert "worker.capabilities: " in said
    assert "ADE_WORKER__CAPABILITIES" in said


@pytest.mark.parametrize(
    ("line", "name", "rule"),
    [
        ("prefix = ''", "redis.prefix", "must not be empty"),
        ("prefix = 'a{b}'", "redis.prefix", "nor have braces"),
        ("task_stream = 'with space'", "redis.task_stream", "nor have braces, spaces"),
        ('group = "a\\u0007"', "redis.group", "control characters"),
        ("result_stream = 'one'\ndlq_stream = 'one'", "redis.dlq_stream", "must have different names"),
        ("partitions = 0", "redis.partitions", ">= 1"),
        ("patience_s = 0", "redis.patience_s", "> 0"),
        ("durability = 'weak'", "redis.durability", "weak"),
        ("replicas = 0", "redis.replicas", ">= 1"),
        ("confirm_timeout_s = 6", "redis.confirm_timeout_s", "must be less than redis.command_timeout_s"),
    ],
)
def test_what_cannot_work_with_redis_is_refused(tmp_path: Path, line: str, name: str, rule: str) -> None:
    said = complaint(tmp_path, f"[redis]\n{line}\n")

    assert name in said
    assert rule in said

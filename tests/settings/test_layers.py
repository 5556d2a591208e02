"""Where a setting's value comes from, and who wins."""

import subprocess
import sys
from pathlib import Path

import pytest

from ade.settings import KNOWN, Settings, load, standard_files


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_any_layer_the_defaults_hold_and_say_so() -> None:
    loaded = load(env={}, files=[])

    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == set(KNOWN) == {name for name, _ in loaded.settings.items()}


def test_the_defaults_are_those_that_the_guarantees_rest_on() -> None:
    settings = Settings()

    assert settings.store.url == "sqlite:///.ade/ade.db"
    assert settings.store.synchronous == "full"
    assert (settings.worker.lease_s, settings.worker.heartbeat_s) == (30, 5)
    assert (settings.task.max_attempts, settings.task.backoff_cap_s) == (3, 300)
    assert settings.sweep.retention_s == 7 * 24 * 3600


def test_each_layer_wins_over_the_one_below_and_leaves_its_name(tmp_path: Path) -> None:
    system = write(tmp_path / "system.toml", "[worker]\nconcurrency = 1\nprocesses = 1\nbatch = 1\nthreads = 1\n")
    user = write(tmp_path / "user.toml", "[worker]\nconcurrency = 2\nprocesses = 2\nbatch = 2\n")
    env = {"ADE_WORKER__CONCURRENCY": "3", "ADE_WORKER__PROCESSES": "3"}

    loaded = load(files=[system, user], env=env, flags={"worker.concurrency": 4})

    worker, origins = loaded.settings.worker, loaded.origins
    assert (worker.concurrency, origins["worker.concurrency"]) == (4, "flag")
    assert (worker.processes, origins["worker.processes"]) == (3, "ADE_WORKER__PROCESSES")
    assert (worker.batch, origins["worker.batch"]) == (2, str(user))
    assert (worker.threads, origins["worker.threads"]) == (1, str(system))
    assert (worker.poll_s, origins["worker.poll_s"]) == (1.0, "default")


def test_the_files_are_the_systems_the_users_and_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"HOME": str(tmp_path / "ada")}
    user = write(tmp_path / "ada/.config/ade/ade.toml", "[log]\nlevel = 'debug'\nformat = 'json'\n")
    write(tmp_path / "project/ade.toml", "[log]\nlevel = 'error'\n")
    monkeypatch.chdir(tmp_path / "project")

    assert standard_files(env) == [Path("/etc/ade/ade.toml"), user, Path("ade.toml")]
    loaded = load(env=env, files=standard_files(env)[1:])

    assert (loaded.settings.log.level, loaded.origins["log.level"]) == ("error", "ade.toml")
    assert (loaded.settings.log.format, loaded.origins["log.format"]) == ("json", str(user))


def test_a_process_without_a_home_has_no_user_file() -> None:
    assert standard_files({}) == [Path("/etc/ade/ade.toml"), Path("ade.toml")]


def test_files_that_cannot_exist_are_like_files_that_do_not() -> None:
    assert load(env={}, files=[Path("/dev/null/ade.toml")]).settings == Settings()


def test_the_environments_text_becomes_the_type_of_the_setting() -> None:
    env = {
        "ADE_STORE__ALLOW_NETWORK_FS": "true",
        "ADE_STORE__BLOB_DIR": "",
        "ADE_STORE__URL": "memory://",
        "ADE_WORKER__QUEUES": "mail, reports,",
        "ADE_WORKER__LEASE_S": "60",
        "ADE_LOG__LEVEL": "debug",
    }
    settings = load(env=env, files=[]).settings

    assert settings.store.allow_network_fs is True
    assert settings.store.blob_dir is None
    assert settings.store.url == "memory://"
    assert settings.worker.queues == ("mail", "reports")
    assert settings.worker.lease_s == 60.0
    assert settings.log.level == "debug"


def test_variables_that_are_no_settings_are_left_alone() -> None:
    assert load(env={"ADE_APP": "shop:ade", "OTHER_WORKER__BATCH": "7"}, files=[]).settings == Settings()


def test_a_flag_that_was_not_given_changes_nothing() -> None:
    loaded = load(env={"ADE_WORKER__BATCH": "7"}, files=[], flags={"worker.batch": None})

    assert (loaded.settings.worker.batch, loaded.origins["worker.batch"]) == (7, "ADE_WORKER__BATCH")


def test_flags_come_as_text_or_as_values() -> None:
    flags = {"worker.queues": ["mail"], "worker.batch": "7", "store.url": "memory://"}
    settings = load(env={}, files=[], flags=flags).settings

    assert (settings.worker.queues, settings.worker.batch, settings.store.url) == (("mail",), 7, "memory://")


def test_settings_cannot_be_changed_once_read() -> None:
    settings = load(env={}, files=[]).settings

    with pytest.raises(AttributeError):
        settings.worker.batch = 7  # type: ignore[misc]  # the very thing that must not work


def test_reading_settings_loads_nothing_heavy() -> None:
    heavy = ("apsw", "asyncio", "click", "difflib", "rich", "tomllib")
    load_alone = "import sys, ade.settings; ade.settings.load(files=[])"
    program = f"{load_alone}; print([name for name in {heavy} if name in sys.modules])"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"

"""A store that must not be used: each kind has its code, and the file stays as it was."""

import os
from pathlib import Path

import apsw
import pytest

from tests.cli.conftest import Call

COMMANDS = [["tasks"], ["enqueue", "pack", "item=lamp"], ["doctor"], ["stats"], ["queues", "list"], ["sweep", "--once"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_corrupt_file(new_shop: Call, folder: Path, command: list[str]) -> None:
    (folder / "shop.db").write_bytes(os.urandom(100_000))
    before = (folder / "shop.db").read_bytes()
    answer = new_shop(*command, "--json")

    assert (answer.code, answer.out, answer.error["code"]) == (6, "", "store_corrupt")
    assert (folder / "shop.db").read_bytes() == before


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_file_of_a_newer_version(shop: Call, folder: Path, command: list[str]) -> None:
    connection = apsw.Connection(str(folder / "shop.db"))
    connection.pragma("user_version", 9999)
    connection.close()
    answer = shop(*command, "--json")

    assert (answer.code, answer.error["code"]) == (6, "store_too_new")
    assert "Upgrade ADE" in answer.error["message"]
    assert str(folder / "shop.db") in answer.error["message"]


def test_a_database_of_another_program(new_shop: Call, folder: Path) -> None:
    connection = apsw.Connection(str(folder / "shop.db"))
    connection.execute("CREATE TABLE recipe (name)")
    connection.close()
    answer = new_shop("tasks", "--json")

    assert (answer.code, answer.error["code"]) == (6, "store_foreign")
    assert str(folder / "shop.db") in answer.error["message"]


def test_a_folder_where_a_file_should_be(new_shop: Call, folder: Path) -> None:
    (folder / "shop.db").mkdir()
    answer = new_shop("tasks", "--json")

    assert (answer.code, answer.error["code"]) == (6, "store_unsupported")


CHANGING = [["enqueue", "pack", "item=lamp"], ["queues", "pause", "default", "--new"]]


@pytest.mark.parametrize("command", CHANGING, ids=lambda command: command[0])
def test_a_file_that_cannot_be_written_can_only_be_looked_at(
    shop: Call, folder: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:  # root may write everything, so the system's answer is stood in for
        usual = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and usual(path, mode))
    else:
        (folder / "shop.db").chmod(0o444)
    answer = shop(*command, "--json")

    assert (answer.code, answer.error["code"]) == (6, "store_read_only")
    assert shop("tasks", "--json").json["items"] == []


def test_a_full_disk_takes_no_new_work_but_can_be_looked_at(shop: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    shop("enqueue", "pack", "item=lamp")
    monkeypatch.setattr("ade.stores.sqlite.writer.free_percent", lambda folder: 0.5)
    answer = shop("enqueue", "pack", "item=lamp", "--json")

    assert (answer.code, answer.error["code"]) == (5, "disk_full")
    assert len(shop("tasks", "--json").json["items"]) == 1


LOOKING = [
    *(["tasks"], ["show", "abcdef12"], ["logs", "abcdef12"], ["wait", "abcdef12"], ["explain", "abcdef12"], ["stats"]),
    *(["top", "--once"], ["workers"], ["events", "tail"], ["dlq", "list"], ["dlq", "show", "abc"], ["queues", "list"]),
    *(["schedules", "list"], ["doctor"], ["audit", "verify"], ["audit", "export"], ["backup", "b.db"], ["archive"]),
    *(["cancel", "abcdef12"], ["retry", "abcdef12"], ["queues", "pause", "default"], ["dlq", "replay", "--all"]),
]


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_who_looks_makes_no_store(ade: Call, folder: Path, command: list[str]) -> None:
    before = sorted(folder.iterdir())
    answer = ade(*command, "--store", "sqlite:///new/shop.db", "--json")

    assert (answer.code, answer.out, answer.error["code"]) == (6, "", "store_missing")
    place = folder / "new" / "shop.db"
    assert answer.error["message"] == f"there is no store at {place}; `ade up` or `ade enqueue` creates one"
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("command", [["tasks"], ["doctor"], ["cancel", "abcdef12"]], ids=" ".join)
def test_who_looks_at_an_empty_file_makes_no_store_of_it(ade: Call, folder: Path, command: list[str]) -> None:
    (folder / "empty.db").touch()
    before = sorted(folder.iterdir())
    answer = ade(*command, "--store", "sqlite:///empty.db", "--json")

    assert (answer.code, answer.error["code"]) == (6, "store_missing")
    assert (folder / "empty.db").stat().st_size == 0
    assert sorted(folder.iterdir()) == before


def test_who_enqueues_makes_a_store_of_an_empty_file(new_shop: Call, folder: Path) -> None:
    (folder / "shop.db").touch()
    assert new_shop("enqueue", "pack", "item=lamp").code == 0
    assert len(new_shop("tasks", "--json").json["items"]) == 1


def test_a_mistaken_name_makes_no_store(ade: Call, new_shop: Call, folder: Path) -> None:
    for more in ([], ["--app", "shop:ade"]):
        answer = ade("enqueue", "pakc", *more, "--json")
        assert (answer.code, answer.error["code"]) == (3, "unknown_name")
    assert "did you mean pack?" in answer.error["message"]
    assert not (folder / "shop.db").exists()


def test_a_queue_may_be_the_first_thing_in_a_store(ade: Call, folder: Path) -> None:
    assert ade("queues", "limit", "mail", "5", "--new", "--store", "sqlite:///new.db").code == 0
    assert (folder / "new.db").exists()


@pytest.mark.parametrize("url", ["postgres://x", "sqlite:///", "sqlite://shop.db", "shop.db", "sqlite:///a?mode=ro"])
def test_a_url_that_nobody_knows(ade: Call, url: str) -> None:
    answer = ade("tasks", "--store", url, "--json")

    assert (answer.code, answer.error["code"]) == (2, "invalid_url")

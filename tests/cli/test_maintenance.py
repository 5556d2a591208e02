"""`ade doctor`, `config`, `backup`, `archive`, `audit`, `completion`: looking after an installation."""

import gzip
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.cli.conftest import Call, work


def verdicts(shop: Call) -> tuple[int, dict[str, set[str]]]:
    answer = shop("doctor", "--json")
    found: dict[str, set[str]] = {}
    for finding in answer.json["findings"]:
        found.setdefault(finding["check"], set()).add(finding["verdict"])
    return answer.code, found


def test_a_healthy_installation_gets_a_clean_bill(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    work()
    code, found = verdicts(shop)

    assert code == 0
    assert found["invariants"] == found["settings"] == found["event log"] == {"ok"}
    assert shop("doctor").lines[0].split() == ["VERDICT", "CHECK", "FINDING"]


def test_work_without_workers_and_dead_letters_deserve_attention(shop: Call) -> None:
    shop("enqueue", "send", "address=nowhere")
    work()
    shop("queues", "pause", "default")
    shop("enqueue", "pack", "item=lamp")
    code, found = verdicts(shop)

    assert code == 0
    assert "warning" in found["queues"]


def test_a_broken_invariant_is_a_problem(shop: Call, folder: Path) -> None:
    shop("enqueue", "pack", "item=lamp")
    connection = apsw.Connection(str(folder / "shop.db"))
    connection.execute("UPDATE tally SET count = count + 5")
    connection.close()
    answer = shop("doctor", "--json")

    assert (answer.code, answer.json["ok"]) == (1, False)
    assert any(each["check"] == "invariants" and each["verdict"] == "problem" for each in answer.json["findings"])


def test_settings_show_where_they_come_from(ade: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ade.toml").write_text("[worker]\nconcurrency = 7\n")
    (folder / "more.toml").write_text("[worker]\nthreads = 3\n")
    monkeypatch.setenv("ADE_LOG__LEVEL", "debug")
    answer = ade("config", "show", "--origin", "--json", "--config", "more.toml", "--store", "memory://")

    told = answer.json
    assert told["worker.concurrency"] == {"value": 7, "origin": "ade.toml"}
    assert told["worker.threads"] == {"value": 3, "origin": "more.toml"}
    assert told["log.level"] == {"value": "debug", "origin": "ADE_LOG__LEVEL"}
    assert told["store.url"] == {"value": "memory://", "origin": "flag"}
    assert told["task.max_attempts"]["origin"] == "default"


def test_passwords_in_urls_are_not_shown_wherever_they_are(ade: Call, folder: Path) -> None:
    (folder / "ade.toml").write_text(
        '[client.profiles.far]\nurl = "https://ada:hush@b.example"\n'
        '[events]\naudit_url = "postgresql://ada:hush@c.example/audit"\n'
    )
    shown = ade("config", "show", "--json").json

    assert shown["client.profiles"] == {"far": {"url": "https://ada:***@b.example"}}
    for words in (("show",), ("show", "--json"), ("get", "client.profiles"), ("get", "events.audit_url")):
        answer = ade("config", *words)
        assert "hush" not in answer.out + answer.err
        assert "***" in answer.out
    for command in ("sweep", "whoami --as rita"):
        refused = ade(*command.split(), "--profile", "far")
        assert "hush" not in refused.err
        assert "https://ada:***@b.example" in refused.err


def test_an_app_that_names_its_store_is_found_there_unless_the_command_line_says_otherwise(
    ade: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADE_STORE__URL", "sqlite:///elsewhere.db")  # programs that use the app do not go there either
    show = ("config", "show", "--origin", "--json", "--app", "shop:ade")

    assert ade(*show).json["store.url"] == {"value": "sqlite:///shop.db", "origin": "app shop:ade"}
    named = ade(*show, "--store", "sqlite:///named.db").json["store.url"]
    assert named == {"value": "sqlite:///named.db", "origin": "flag"}


def test_settings_that_an_app_was_given_count_where_no_layer_says_otherwise(
    ade: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "strict.py").write_text(
        "from ade import Ade, Settings\nfrom ade.settings import TaskSettings, WorkerSettings\n"
        "ade = Ade(settings=Settings(task=TaskSettings(max_attempts=9), worker=WorkerSettings(threads=2)))\n"
    )
    monkeypatch.setenv("ADE_WORKER__THREADS", "5")
    told = ade("config", "show", "--origin", "--json", "--app", "strict:ade").json

    assert told["task.max_attempts"] == {"value": 9, "origin": "app strict:ade"}
    assert told["worker.threads"] == {"value": 5, "origin": "ADE_WORKER__THREADS"}


def test_only_what_was_changed_is_shown_when_asked(ade: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ADE_STORE__BALLAST_MB")
    monkeypatch.setenv("ADE_WORKER__CONCURRENCY", "9")

    assert ade("config", "show", "--changed", "--json").json == {"worker.concurrency": 9}
    assert ade("config", "show", "--changed").lines[1].split() == ["worker.concurrency", "9"]


def test_a_wrong_setting_stops_every_command(ade: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADE_WORKER__CONCURENCY", "9")
    answer = ade("tasks", "--json")

    assert (answer.code, answer.error["code"]) == (2, "bad_settings")
    assert "Did you mean worker.concurrency?" in answer.error["message"]


def test_a_backup_is_a_store_of_its_own(shop: Call, folder: Path) -> None:
    task_id = shop("enqueue", "pack", "item=lamp").out.strip()
    assert shop("backup", "copy.db").code == 0

    assert shop("tasks", "--store", "sqlite:///copy.db", "--json").json["items"][0]["id"] == task_id
    again = shop("backup", "copy.db", "--json")
    assert (again.code, "exists already" in again.error["message"]) == (2, True)
    nowhere = shop("backup", "no/folder/copy.db", "--json")
    assert (nowhere.code, nowhere.error["code"]) == (6, "store_read_only")


def test_archiving_counts_first_and_then_prunes(shop: Call, folder: Path) -> None:
    for number in range(3):
        shop("enqueue", "pack", f"item=lamp{number}")
    work()
    shop("enqueue", "pack", "item=waiting")

    assert shop("archive", "--dry-run").out == "0 tasks would be pruned.\n"
    dry = shop("archive", "--dry-run", "--older-than", "0", "--to", "old", "--json")
    assert dry.json == {"found": 3, "pruned": 0, "archive": "old"}
    assert shop("archive", "--older-than", "0", "--to", "old").out == "Pruned 3 tasks, archived to old.\n"

    [file] = (folder / "old").glob("*.jsonl.gz")
    archived = [msgspec.json.decode(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert [task["args"]["item"] for task in archived] == ["lamp0", "lamp1", "lamp2"]
    assert len(shop("tasks", "--json").json["items"]) == 1


def test_what_is_archived_nowhere_is_deleted_only_when_somebody_says_so(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    work()
    answer = shop("archive", "--older-than", "0", "--json")

    assert (answer.code, answer.error["code"]) == (2, "usage")
    assert "1 task would be deleted for good" in answer.error["message"]
    assert len(shop("tasks", "--json").json["items"]) == 1
    assert shop("archive", "--older-than", "0", "--yes", "--json").json["pruned"] == 1
    assert shop("archive", "--older-than", "0", "--json").json["pruned"] == 0  # nothing to ask about


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/nowhere"])
def test_an_archive_folder_that_cannot_be_made_is_told_before_the_work(shop: Call, folder: Path, place: str) -> None:
    (folder / "file").write_text("not a folder")
    shop("enqueue", "pack", "item=lamp")
    work()
    answer = shop("archive", "--older-than", "0", "--to", place, "--json")

    assert (answer.code, answer.error["code"]) == (2, "usage")
    assert place in answer.error["message"]
    assert len(shop("tasks", "--json").json["items"]) == 1


def test_the_audit_chain_is_verified_and_exported(shop: Call) -> None:
    shop("enqueue", "pack", "item=lamp")
    work()
    answer = shop("audit", "verify")
    entries = shop("audit", "export").json_lines

    told = ["task.created", "schedule.changed", "task.claimed", "task.succeeded"]
    assert answer.out.startswith("The chain is valid: 4 entries")
    assert [entry["event"]["type"] for entry in entries] == told
    assert len({entry["hash"] for entry in entries}) == 4
    assert [entry["seq"] for entry in shop("audit", "export", "--after", str(entries[0]["seq"])).json_lines] == [
        entry["seq"] for entry in entries[1:]
    ]


def test_an_entry_that_somebody_changed_is_found(shop: Call, folder: Path) -> None:
    shop("enqueue", "pack", "item=lamp")
    shop("audit", "verify")
    break_chain(folder)
    answer = shop("audit", "verify", "--json")

    assert (answer.code, answer.error["code"]) == (1, "audit_broken")
    assert audit_verdict(shop) == (1, "problem")


def test_a_chain_that_was_rewritten_as_a_whole_is_found_by_its_anchors(shop: Call, folder: Path) -> None:
    """Attack: the log is edited, and the whole copy is rewritten. Every hash of it is correct."""
    (folder / "key").write_text("0123456789abcdef0123456789abcdef")
    shop("enqueue", "pack", "item=lamp")
    anchored = shop("audit", "anchor", "--file", "anchors.jsonl", "--key-file", "key")
    assert anchored.out.startswith("Anchored in anchors.jsonl: seq 1, hash ")
    with_anchors = ("audit", "verify", "--anchors", "anchors.jsonl", "--key-file", "key")
    assert "Anchors that the chain contains: 1" in shop(*with_anchors).out

    connection = apsw.Connection(str(folder / "shop.db"))
    connection.execute("UPDATE event SET payload = replace(payload, 'pack', 'sack'); DELETE FROM cursor")
    connection.close()
    for file in folder.glob("shop.audit.db*"):
        file.unlink()
    assert shop("audit", "verify").code == 0
    answer = shop(*with_anchors, "--json")
    assert (answer.code, answer.error["code"]) == (1, "audit_broken")
    assert "entry 1 was anchored" in answer.error["message"]
    assert shop("audit", "anchor", "--file", "anchors.jsonl", "--json").error["code"] == "bad_settings"


def test_an_account_that_somebody_edited_in_the_database_is_listed(shop: Call, folder: Path) -> None:
    shop("users", "add", "rita", "--role", "reviewer", "--password-stdin", stdin="correct horse battery staple")
    assert "Records that match the log: 1" in shop("audit", "verify").out
    connection = apsw.Connection(str(folder / "shop.db"))
    connection.execute("UPDATE document SET body = replace(body, '\"reviewer\"', '\"admin\"') WHERE kind = 'user'")
    connection.close()
    answer = shop("audit", "verify")
    assert (answer.code, answer.out) == (1, "account rita has the roles admin; by the log reviewer\n")
    assert "1 difference between the records and the log" in answer.err


def break_chain(folder: Path) -> None:
    """Somebody changes what is kept, past everything that is there against it."""
    connection = apsw.Connection(str(folder / "shop.audit.db"))
    for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    [(table,)] = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    connection.execute(f"UPDATE {table} SET body = replace(body, 'pack', 'sack')")
    connection.close()


def audit_verdict(shop: Call) -> tuple[int, str]:
    answer = shop("doctor", "--json")
    [finding] = [finding for finding in answer.json["findings"] if finding["check"] == "audit"]
    assert finding["verdict"] != "problem" or "ade audit verify" in finding["advice"]
    return answer.code, finding["verdict"]


def test_doctor_sees_an_audit_copy_that_is_well_cut_off_gone_or_damaged(shop: Call, folder: Path) -> None:
    shop("enqueue", "pack", "item=lamp")
    shop("enqueue", "pack", "item=lamp")
    assert audit_verdict(shop) == (0, "ok")
    file = folder / "shop.audit.db"
    assert not file.exists()  # looking makes none

    shop("audit", "verify")
    assert audit_verdict(shop) == (0, "ok")
    connection = apsw.Connection(str(file))
    for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    connection.execute("DELETE FROM entry WHERE seq = (SELECT max(seq) FROM entry)")
    connection.close()
    assert audit_verdict(shop) == (1, "problem")

    file.write_bytes(b"no database at all " * 1000)
    assert audit_verdict(shop) == (1, "problem")
    file.unlink()
    assert audit_verdict(shop) == (1, "problem")


def test_after_an_older_backup_was_restored_a_new_audit_copy_can_begin(shop: Call, folder: Path) -> None:
    shop("enqueue", "pack", "item=lamp")
    shop("audit", "verify")
    shop("backup", "older.db")
    shop("enqueue", "pack", "item=lamp")
    shop("audit", "verify")
    for file in folder.glob("shop.db*"):
        if file.is_file():
            file.unlink()
    (folder / "older.db").rename(folder / "shop.db")
    assert "ade audit begin" in shop("audit", "verify").err
    assert shop("audit", "begin", "--yes").code == 1  # the old copy is still there

    (folder / "shop.audit.db").rename(folder / "evidence.db")
    answer = shop("audit", "verify", "--json")
    assert (answer.code, answer.error["code"]) == (1, "audit_broken")
    assert not (folder / "shop.audit.db").exists()  # what is gone is not made anew by a look
    assert "Add --yes" in shop("audit", "begin").err
    assert shop("audit", "begin", "--yes").out.startswith("A new chain was started: 1 entry up to seq 1")

    shop("enqueue", "pack", "item=soap")
    assert shop("audit", "verify").out.startswith("The chain is valid: 2 entries")
    assert audit_verdict(shop) == (0, "ok")


def test_an_event_that_somebody_changed_in_the_log_is_found(shop: Call, folder: Path) -> None:
    for item in ("lamp", "rope", "soap"):
        shop("enqueue", "pack", f"item={item}")
    shop("audit", "verify")
    connection = apsw.Connection(str(folder / "shop.db"))
    [(seq,)] = connection.execute("SELECT seq FROM event ORDER BY seq LIMIT 1 OFFSET 1").fetchall()
    connection.execute("UPDATE event SET type = 'task.cancelled' WHERE seq = ?", (seq,))
    connection.close()
    answer = shop("audit", "verify", "--json")

    assert (answer.code, answer.error["code"]) == (1, "audit_broken")
    assert f"event {seq} " in answer.error["message"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion(ade: Call, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "_ADE_COMPLETE" in ade("completion", shell).out
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    assert ade("completion", "--json").json["shell"] == shell


def test_an_unknown_shell_is_told(ade: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")

    assert ade("completion").code == 2

"""The command line in real processes: pipes, signals, terminals, workers."""

import signal
from pathlib import Path

import pytest

from tests.cli.processes import Terminal, TerminalIgnoringSigint, call, call_json, ended, eventually, started

pytestmark = pytest.mark.slow
DEMO = "ade.demo:ade"
TASKS = '{"name": "brew_tea", "args": {"minutes": 0}}\n'


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A folder with a store of more tasks than a pipe takes at once."""
    (tmp_path / "tasks.jsonl").write_text(TASKS * 1500)
    assert call(tmp_path, "enqueue", "--file", "tasks.jsonl", "--app", DEMO).returncode == 0
    return tmp_path


def test_a_reader_that_goes_away_is_no_reason_to_complain(busy: Path) -> None:
    with started(busy, "events", "tail", "--after", "0", "--json") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith('{"type":"task.created",')
        process.stdout.close()
        process.wait(timeout=90)

        assert process.returncode == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_ctrl_c_ends_a_command_without_a_traceback(busy: Path) -> None:
    with started(busy, "events", "tail", "--follow", "--after", "1499") as process:
        assert process.stdout is not None
        assert "task.created" in process.stdout.readline()

        code, _, err = ended(process, signal.SIGINT)

    assert (code, err.strip()) == (130, "Interrupted.")


@pytest.mark.long
def test_up_starts_the_demo_and_ends_cleanly_with_sigterm(tmp_path: Path) -> None:
    with started(tmp_path, "up", "--app", DEMO, "--json") as process:
        assert process.stdout is not None
        hello = process.stdout.readline()
        assert '"up":true' in hello
        assert '"seeded":7' in hello

        def is_worked_off() -> bool:
            tasks = call_json(tmp_path, "tasks", "--status", "completed", "--app", DEMO)["items"]
            return {"count_words", "count_primes", "deliver_parcel"} <= {task["name"] for task in tasks}

        eventually(is_worked_off, "the first tasks of the demo")
        [group] = call_json(tmp_path, "dlq", "list")["items"]
        assert group["name"] == "return_parcel"
        [schedule] = call_json(tmp_path, "schedules", "list")["items"]
        assert schedule["name"] == "tell_the_time"

        code, out, err = ended(process, signal.SIGTERM)

    assert (code, '"stopped":true' in out) == (0, True)
    assert "Traceback" not in err
    assert call_json(tmp_path, "workers")["items"] == []
    assert call_json(tmp_path, "doctor")["ok"] is True


def test_up_seeds_the_demo_once_and_speaks_to_people(tmp_path: Path) -> None:
    call(tmp_path, "enqueue", "brew_tea", "minutes=0", "--app", DEMO)
    with started(tmp_path, "up", "--app", DEMO, ADE_LOG__LEVEL="error") as process:
        assert process.stderr is not None
        said: list[str] = []
        while "Ctrl-C stops it." not in "".join(said):
            said.append(process.stderr.readline())
        code, out, _ = ended(process, signal.SIGINT)

    text = "".join(said)
    assert (code, out) == (0, "")
    assert "ADE is up. Records are in sqlite:///.ade/ade.db" in text
    assert "ade enqueue brew_tea " in text
    assert "demo tasks were enqueued" not in text


def test_what_a_stopping_worker_cannot_finish_is_handed_back(tmp_path: Path) -> None:
    task_id = call(tmp_path, "enqueue", "brew_tea", "minutes=10", "--app", DEMO).stdout.strip()
    with started(tmp_path, "worker", "--app", DEMO, "--grace", "0", "--json") as process:

        def is_running() -> bool:
            return str(call_json(tmp_path, "show", task_id)["status"]) == "running"

        eventually(is_running, "the start of the task")
        code, out, _ = ended(process, signal.SIGTERM)

    assert code == 0
    assert f'"handed_back":["{task_id}"]' in out
    task = call_json(tmp_path, "show", task_id)
    assert (task["status"], task["attempt"]) == ("pending", 0)


def test_several_processes_with_one_flag(tmp_path: Path) -> None:
    assert call(tmp_path, "queues", "limit", "default", "none", "--new").returncode == 0  # there is a store to look at
    with started(tmp_path, "worker", "--app", DEMO, "--processes", "2", ADE_LOG__LEVEL="error") as process:
        eventually(lambda: len(call_json(tmp_path, "workers")["items"]) == 2, "the start of two workers")
        pids = [each["worker"]["pid"] for each in call_json(tmp_path, "workers")["items"]]
        done = call(tmp_path, "enqueue", "count_words", "text=one two two", "most=1", "--wait", "--app", DEMO)
        assert done.stdout.splitlines()[1:] == ["{", '  "two": 2', "}"]

        code, _, _ = ended(process, signal.SIGTERM)

    assert code == 0
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert call_json(tmp_path, "workers")["items"] == []


def test_a_worker_of_a_broken_app_ends_at_once_however_many_processes(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    done = call(tmp_path, "worker", "--app", "broken:ade", "--processes", "3")

    assert done.returncode == 2
    assert done.stderr.count("error[bad_app]") == 1


def test_sweeps_go_on_until_told_to_stop(tmp_path: Path) -> None:
    task_id = call(tmp_path, "enqueue", "brew_tea", "--deadline", "100ms", "--app", DEMO).stdout.strip()
    with started(tmp_path, "sweep") as process:
        eventually(lambda: call_json(tmp_path, "show", task_id)["status"] == "failed", "the end of the task")
        code, _, err = ended(process, signal.SIGTERM)

    assert (code, "Traceback" in err) == (0, False)


def test_a_terminal_gets_a_table_that_fits(busy: Path) -> None:
    terminal = Terminal(busy, "tasks", "--limit", "3")

    assert terminal.finish() == 0
    assert "\x1b[1mid" in terminal.seen  # a bold head
    assert terminal.seen.count("pending") == 3


@pytest.mark.parametrize("command", [["events", "tail", "-f"], ["top"]], ids=" ".join)
def test_whatever_goes_on_until_ctrl_c_ends_with_the_same_code(busy: Path, command: list[str]) -> None:
    with started(busy, *command) as process:
        assert process.stdout is not None
        process.stdout.readline()
        code, _, err = ended(process, signal.SIGINT)

    assert (code, err) == (130, "Interrupted.\n")


def test_top_draws_until_ctrl_c(busy: Path) -> None:
    terminal = Terminal(busy, "top", "--interval", "200ms")
    terminal.read_until("Ctrl-C ends")
    terminal.process.send_signal(signal.SIGINT)

    assert terminal.finish() == 130
    assert "1500 pending" in terminal.seen
    assert "Traceback" not in terminal.seen


def test_ctrl_c_ends_a_command_on_a_terminal_whose_parent_ignores_it(busy: Path) -> None:
    terminal = TerminalIgnoringSigint(busy, "top", "--interval", "200ms")
    terminal.read_until("Ctrl-C ends")
    terminal.process.send_signal(signal.SIGINT)

    assert terminal.finish() == 130


def test_waiting_on_a_terminal_shows_what_happens(tmp_path: Path) -> None:
    task_id = call(tmp_path, "enqueue", "brew_tea", "minutes=0.05", "--app", DEMO).stdout.strip()
    with started(tmp_path, "worker", "--app", DEMO):
        terminal = Terminal(tmp_path, "wait", task_id)
        assert terminal.finish() == 0

    assert "running" in terminal.seen
    assert '"a cup of green tea"' in terminal.seen


def test_a_terminal_is_asked_before_many_tasks_are_cancelled(busy: Path) -> None:
    terminal = Terminal(busy, "cancel", "--name", "brew_tea")
    terminal.read_until("1500 tasks would be cancelled. [y/N]:")
    terminal.answer("n\n")

    assert terminal.finish() == 130
    assert call_json(busy, "stats")["queues"][0]["by_status"] == {"pending": 1500}


@pytest.mark.parametrize("command", [["cancel", "--name", "brew_tea"], ["webhooks", "remove", "hook-1"]])
def test_ctrl_c_ends_a_question_at_once(busy: Path, command: list[str]) -> None:
    terminal = Terminal(busy, *command)
    terminal.read_until("[y/N]:")
    eventually(lambda: terminal.is_asked, "a read from the terminal")
    terminal.process.send_signal(signal.SIGINT)

    assert terminal.finish() == 130
    assert "Interrupted." in terminal.seen


def test_completion_knows_commands_without_loading_them(tmp_path: Path) -> None:
    done = call(tmp_path, COMP_WORDS="ade ta", COMP_CWORD="1", _ADE_COMPLETE="bash_complete")

    assert done.stdout.split() == ["plain,tasks"]

"""Which app is meant: found in the current folder, or refused with the module and attribute that are wrong."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call


def test_the_app_of_the_current_folder_is_found(ade: Call) -> None:
    answer = ade("enqueue", "pack", "item=lamp", "--app", "shop:ade")

    assert answer.code == 0
    assert ade("tasks", "--json", "--store", "sqlite:///shop.db").json["items"][0]["id"] == answer.out.strip()


def test_a_store_on_the_command_line_beats_that_of_the_app(ade: Call) -> None:
    ade("enqueue", "pack", "item=lamp", "--app", "shop:ade", "--store", "sqlite:///other.db")

    assert len(ade("tasks", "--json", "--store", "sqlite:///other.db").json["items"]) == 1
    assert ade("tasks", "--json", "--app", "shop:ade").error["code"] == "store_missing"


@pytest.mark.parametrize(
    ("app", "text", "says"),
    [
        ("nosuch:ade", None, "there is no module 'nosuch' in "),
        ("pkg.nosuch:ade", None, "there is no module 'pkg' in "),
        ("broken:ade", "import nosuch_library", "ModuleNotFoundError: No module named 'nosuch_library'"),
        ("broken:ade", "1 / 0", "importing 'broken' failed with ZeroDivisionError: division by zero"),
        ("broken:ade", "def f(:", "importing 'broken' failed with SyntaxError"),
        ("broken:ade", "import sys; sys.exit(3)", "importing 'broken' failed with SystemExit: 3"),
        (
            "broken:ade",
            "from ade import Ade; Ade().task(priorty=1)(lambda: None)",
            "InvalidTask: unknown option priorty",
        ),
        ("shop:app", None, "the module 'shop' has no attribute 'app'; it has shop:ade"),
        ("shop:pack", None, "'pack' in 'shop' is not an Ade app, but an AsyncTask; it has shop:ade"),
        ("shop", None, "write module:attribute, such as shop:ade"),
        ("./shop.py", None, "write module:attribute, such as shop:ade"),
        (":ade", None, "write module:attribute"),
    ],
)
def test_a_wrong_app_is_told_with_module_and_attribute(
    ade: Call, folder: Path, app: str, text: str | None, says: str
) -> None:
    if text is not None:
        (folder / "broken.py").write_text(f"\n\n{text}\n")
    answer = ade("worker", "--app", app, "--json")

    assert (answer.code, answer.error["code"]) == (2, "bad_app")
    assert says in answer.error["message"]
    assert app in answer.error["message"]
    if text is not None:
        assert "broken.py, line 3)" in answer.error["message"]


def test_without_an_app_a_worker_says_how_to_name_one(ade: Call) -> None:
    answer = ade("worker")

    assert answer.code == 2
    assert "--app module:attribute or set ADE_APP" in answer.err


def test_an_app_without_tasks_is_no_app_to_work_for(ade: Call, folder: Path) -> None:
    (folder / "bare.py").write_text("from ade import Ade\nade = Ade()\n")
    answer = ade("worker", "--app", "bare:ade")

    assert (answer.code, "has no tasks" in answer.err) == (2, True)


def test_options_of_a_worker_are_settings_and_checked_as_such(ade: Call) -> None:
    answer = ade("worker", "--app", "shop:ade", "--concurrency", "0", "--json")

    assert (answer.code, answer.error["code"]) == (2, "bad_settings")
    assert "worker.concurrency" in answer.error["message"]

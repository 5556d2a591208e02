"""Which place a command means: a store, a server, a profile of one."""

import json
from pathlib import Path
from typing import Literal

import pytest

from ade.cli.identity import server_of
from ade.cli.serve import cautions
from ade.settings import SettingsError
from ade.settings.sections import ClientSettings, HttpSettings
from tests.cli.processes import call


@pytest.mark.parametrize(
    "places",
    [["--url", "http://127.0.0.1:1", "--store", "sqlite:///x.db"], ["--url", "http://127.0.0.1:1", "--profile", "p"]],
)
def test_two_places_are_one_too_many(tmp_path: Path, places: list[str]) -> None:
    done = call(tmp_path, "tasks", *places)
    assert done.returncode == 2
    assert "are mutually exclusive" in done.stderr


def test_a_hook_is_about_this_machine_whatever_server_the_settings_name(tmp_path: Path) -> None:
    assert call(tmp_path, "enqueue", "greet", "--allow-unknown", "--store", "sqlite:///ade.db").returncode == 0
    (tmp_path / "ade.toml").write_text('[client]\nurl = "http://127.0.0.1:1"\n[store]\nurl = "sqlite:///ade.db"\n')
    asked = {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {}, "session_id": "s"}
    done = call(tmp_path, "hook", "pre-tool-use", "--for", "claude", stdin=json.dumps(asked))
    assert "could not check" not in done.stderr, done.stderr
    assert done.returncode == 0


def test_agents_are_not_run_behind_a_server(tmp_path: Path) -> None:
    done = call(tmp_path, "worker", "--agents", "command", "--url", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert "needs_store" in done.stderr


def test_a_profile_says_where_and_how(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("ade_secret\n")
    profile = {"url": "http://ade:8411", "token_file": str(tmp_path / "token"), "allow_plain": True}
    chosen = server_of(ClientSettings(profile="p", profiles={"p": profile}), prefers_url=False)
    assert chosen == ("http://ade:8411", "ade_secret", True)
    for wrong in ({}, {"url": ""}, {"url": "http://a", "token": "x"}, {"url": "http://a", "token_file": "/nowhere"}):
        with pytest.raises(SettingsError):
            server_of(ClientSettings(profile="p", profiles={"p": wrong}), prefers_url=False)
    with pytest.raises(SettingsError, match="there is no profile 'q'; the settings have p"):
        server_of(ClientSettings(profile="q", profiles={"p": profile}), prefers_url=False)


@pytest.mark.parametrize(
    ("host", "auth", "words"),
    [
        ("127.0.0.1", "required", []),
        ("::1", "off", ["open"]),
        ("0.0.0.0", "required", ["plain"]),
        ("192.0.2.7", "required", ["plain"]),
    ],
)
def test_who_serves_is_told_who_else_gets_to_it(host: str, auth: Literal["required", "off"], words: list[str]) -> None:
    assert [line.split()[0] for line in cautions(HttpSettings(host=host, auth=auth))] == words


@pytest.mark.parametrize(
    "command", [["serve"], ["up", "--app", "ade.demo:ade"], ["backup", "copy.db"], ["sweep", "--once"]]
)
def test_what_belongs_to_a_store_is_not_done_through_a_server(tmp_path: Path, command: list[str]) -> None:
    done = call(tmp_path, *command, "--url", "http://127.0.0.1:1")
    assert done.returncode == 2, done.stderr
    assert not list(tmp_path.glob("**/*.db"))

"""What the fuzzer, and the targets' first runs, have found: each once, as plainly as it can be said."""

import time

import msgspec
import pytest

from ade.agents.profile_documents import profile_from_markdown
from ade.agents.protocols.base import ToolCalled
from ade.agents.runs.runner import as_printed
from ade.approvals.digest import read_preview
from ade.approvals.errors import InvalidSubject
from ade.cli.parameters import moment_ms, seconds_of
from ade.client.responses import read_record
from ade.common.patterns import folded, text_pattern
from ade.common.text import without_password
from ade.errors import InvalidArguments, InvalidFilter, InvalidProfile, InvalidSchedule, InvalidUrl
from ade.server.problems import ServerProblem, read_problem
from ade.settings import SettingsError, load
from ade.tasks.commands.options import parse_pairs
from ade.tasks.cron import next_fire_ms
from tests.domain import Event, parse_url

DEEP = "[" * 100_000


def test_a_time_zone_of_thousands_of_folders_is_unknown() -> None:
    """It was followed as packages within packages, until the recursion ended with a fault."""
    with pytest.raises(InvalidSchedule, match="unknown"):
        next_fire_ms("0 9 * * *", "UTC" + "/a" * 5_000, 0)


def test_what_an_invisible_character_parts_is_matched_as_one() -> None:
    """An accent behind such a character got past the rules."""
    assert folded("caf" + "e\u200b\u0301") == folded("café") == "café"
    assert text_pattern("*café*").matches(folded("the Cafe\u2060\u0301 here"))


@pytest.mark.parametrize("text", ["9" * 400 + "d", "1" * 99 + "w", "1" * 8_000, "1h" * 8_000])
def test_no_length_of_time_is_endless_nor_takes_long_to_read(text: str) -> None:
    begun = time.process_time()

    assert seconds_of(text) is None
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("text", ["9" * 400 + "d", "1h" * 8_000])
def test_nothing_was_an_endless_time_ago(text: str) -> None:
    with pytest.raises(InvalidFilter):
        moment_ms(text, now=1_790_000_000_000)


@pytest.mark.parametrize("url", ["redis://host/" + "9" * 5_000, "redis://host:" + "9" * 5_000])
def test_a_number_of_thousands_of_digits_in_a_store_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl, match="number"):
        parse_url(url)


@pytest.mark.parametrize("code", ["0", "256", "0255000", "00019" + "9" * 5_000, "٣"])
def test_an_exit_code_is_what_a_program_can_exit_with(code: str) -> None:
    with pytest.raises(InvalidProfile, match="exit code"):
        profile_from_markdown(f'---\nname: x\nexit_codes: {{"{code}": "rate_limited"}}\n---\n')


@pytest.mark.parametrize("line", ['system_prompt: "\\ud800"', 'description: "a\\u0000b"', 'set: {"A": "\\u0000"}'])
def test_a_profile_has_no_text_that_a_program_cannot_be_given(line: str) -> None:
    with pytest.raises(InvalidProfile, match="surrogate"):
        profile_from_markdown(f"---\nname: x\n{line}\n---\n")


@pytest.mark.parametrize("raw", [b'{"versions": {"\xff": "1"}}', b'{"changes": ' + DEEP.encode()])
def test_a_preview_that_cannot_be_read_is_refused_as_one(raw: bytes) -> None:
    with pytest.raises(InvalidSubject):
        read_preview(msgspec.Raw(raw))


def test_an_answer_that_goes_too_deep_is_one_that_cannot_be_read() -> None:
    with pytest.raises(ServerProblem):
        read_record(Event, f'{{"type": "a", "at": "2026-01-31T12:00:00Z", "payload": {{"a": {DEEP}')
    assert read_problem(500, DEEP.encode(), {}).code == ServerProblem.code


def test_arguments_that_go_too_deep_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="is not JSON"):
        parse_pairs([f"a:={DEEP}"], None)
    assert parse_pairs([f"a={DEEP}"], None) == {"a": DEEP}


def test_a_tool_call_that_goes_too_deep_is_shown_as_it_is() -> None:
    assert as_printed(ToolCalled(id="t1", name="Bash", arguments=DEEP)).arguments == {"input": DEEP}


def test_settings_of_bytes_that_are_no_text_are_told_by_name() -> None:
    with pytest.raises(SettingsError, match="ADE_WORKER__LEASE_S"):
        load(env={"ADE_WORKER__LEASE_S": "5\udcff"}, files=[])


def test_settings_that_go_too_deep_are_told_with_their_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("settings") / "ade.toml"
    path.write_text(f"a = {DEEP}")

    with pytest.raises(SettingsError, match="cannot be read"):
        load(env={}, files=[path])


def test_a_long_text_with_many_schemes_is_shown_at_once() -> None:
    begun = time.process_time()

    assert without_password("://a:" * 20_000) == "://a:" * 20_000
    assert time.process_time() - begun < 1


def test_a_password_is_hidden_where_the_scheme_was_forgotten() -> None:
    assert without_password("//user:secret99@host/0") == "//user:***@host/0"

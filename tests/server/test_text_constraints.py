"""What the description tells of a text is what is checked where it is used."""

import re
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta

from ade.accounts.model import normal_id, normal_roles
from ade.agents.model import check_type
from ade.common.gcra import read_rate
from ade.errors import AdeError, InvalidTask
from ade.events.filters import parse_filter
from ade.locks.model import is_lock_name
from ade.locks.requests import check_namespace
from ade.server import request_types
from ade.tasks.admission import check_name, check_queue_name
from ade.tasks.identifiers import check_inbox_id, is_task_id
from ade.tasks.model import capabilities_of
from ade.webhooks.model import check_patterns
from tests.depth import examples

Check = Callable[[str], object]


def accepts(check: Check, text: str) -> bool:
    """A check answers whether it is right, or raises if it is not."""
    try:
        return check(text) is not False
    except AdeError:
        return False


def is_type(text: str) -> None:
    """Of an agent; the empty one takes away what was known."""
    if text:
        check_type(text)


CHECKS: dict[str, tuple[Any, Check]] = {
    "task name": (request_types.TaskName, check_name),
    "queue": (request_types.QueueName, check_queue_name),
    "namespace": (request_types.Namespace, check_namespace),
    "task id": (request_types.TaskId, is_task_id),
    "capability": (request_types.Capability, lambda text: capabilities_of([text], "it", InvalidTask)),
    "type of an agent": (request_types.AgentType, is_type),
    "rate": (request_types.RateText, lambda text: read_rate(text) is not None),
    "type of event": (request_types.EventType, lambda text: parse_filter([("type", text)])),
    "pattern of a webhook": (request_types.EventPattern, lambda text: check_patterns([text])),
    "inbox": (request_types.InboxName, check_inbox_id),
    "account": (request_types.AccountName, normal_id),
    "role": (request_types.RoleName, lambda text: normal_roles([text])),
    "lock": (request_types.LockName, is_lock_name),
}


def pattern_of(kind: Any) -> re.Pattern[str]:
    [meta] = [each for each in get_args(kind) if isinstance(each, Meta)]
    assert meta.extra_json_schema is not None
    return re.compile(meta.extra_json_schema["pattern"])


LONGEST = 100  # of types of events, which the description tells beside the pattern
ASCII = st.text(st.characters(max_codepoint=0x7E, min_codepoint=0x20), max_size=30)


@pytest.mark.parametrize("name", CHECKS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_what_fits_is_taken(name: str, data: st.DataObject) -> None:
    kind, check = CHECKS[name]
    text = data.draw(st.from_regex(pattern_of(kind), fullmatch=True, alphabet=st.characters(codec="ascii")))
    is_told_long = kind in (request_types.EventType, request_types.EventPattern) and len(text) > LONGEST
    assert is_told_long or accepts(check, text), text


@pytest.mark.parametrize("name", CHECKS)
@settings(max_examples=examples(50))
@given(text=ASCII)
def test_what_does_not_fit_is_refused(name: str, text: str) -> None:
    kind, check = CHECKS[name]
    is_sloppy = name == "rate" and re.search(r" |/0", text)  # which is taken, and not told
    if not pattern_of(kind).fullmatch(text) and not is_sloppy:
        assert not accepts(check, text), text

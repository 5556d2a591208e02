"""What a webhook is told of an event: ids and facts, never arguments, results, or what people or programs have written.

Only fields that are known to be such are told, so a new kind of event tells too little rather than too much.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from ade.core.events import Event, is_of_access
from ade.core.web.event_payloads import event_outside

LARGEST_BODY = 20_000  # bytes: what Standard Webhooks recommends
_LONGEST_TEXT, _MOST_ITEMS = 200, 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ERROR_TYPE = re.compile(r"([A-Za-z_][A-Za-z0-9_.]{0,99}): ")

# fmt: off
FACTS = frozenset({
    "account", "agent", "agent_id", "approval", "attempt", "automatic", "batch_id", "capabilities",
    "cleared_count", "client_message_id", "conversation_id", "cost_usd", "cron", "cycle", "delay_ms", "delegate",
    "delegation", "delegator", "delivery", "digest", "edited", "ended", "ends_at", "entry", "events", "expires_at",
    "fields", "generation", "inbox_id", "is_active", "is_early", "is_human", "item_id", "item_ids", "items", "kind",
    "level", "locks", "max_depth", "max_tasks", "merged_count", "mode", "model", "name", "namespace",
    "new_worker", "occasion", "owner", "parent_id", "policies", "previous_worker", "queue", "queue_len",
    "queue_len_after", "request_id", "resource", "roles", "roles_before", "rule", "run_id", "schedule", "scope",
    "scopes", "score", "session_id", "source", "starts_at", "state", "status", "step", "subagent_type", "task",
    "task_id", "timezone", "token", "tokens", "tool", "tool_calls", "turns", "type", "users", "version", "voter",
    "webhook", "worker",
})
# fmt: on

_OF_ACCESS = frozenset({"account"})  # of sessions, tokens and links no more is told than whose they are
_encode = msgspec.json.Encoder(order="deterministic").encode


def body_of(event: Event) -> bytes:
    """The body of the message: `type`, `timestamp` (of the event, RFC 3339) and `data`. The same event makes the same
    body, at most 20 kB of it."""
    ids: dict[str, object] = {"seq": event.seq}
    if event.task_id is not None:
        ids["task_id"] = event.task_id
    if event.actor is not None:
        ids["actor"] = _short(event.actor)
    body = _body(event, {**_facts(event), **ids})
    return body if len(body) <= LARGEST_BODY else _body(event, {**ids, "cut": True})


def rfc3339(at_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _body(event: Event, data: Mapping[str, object]) -> bytes:
    return _encode({"type": event.type, "timestamp": rfc3339(event.at), "data": data})


def _facts(event: Event) -> dict[str, object]:
    facts, payload = {}, event_outside(event).payload
    told = _OF_ACCESS if is_of_access(event) else FACTS
    for name, value in payload.items():
        if name in told and (fact := _fact(value)) is not None:
            facts[name] = fact
    error = payload.get("error")
    if isinstance(error, str) and (found := _ERROR_TYPE.match(error)):
        facts["error_type"] = found[1]  # what it says may be anything
    return facts


def _fact(value: object) -> object:
    """A short text, a number, or a list of such; None for what is no fact."""
    if isinstance(value, str):
        return _short(value)
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        listed = (_item(each) for each in value[:_MOST_ITEMS])
        return [each for each in listed if each is not None]
    return None


def _item(value: object) -> object:
    """As in a list of locks, which are resource, mode and token each."""
    if isinstance(value, dict):
        known = {name: _short(each) if isinstance(each, str) else each for name, each in value.items() if name in FACTS}
        return {name: each for name, each in known.items() if isinstance(each, str | bool | int | float)}
    return _fact(value) if isinstance(value, str | bool | int | float) else None


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"

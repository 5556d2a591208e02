"""The description of the interface is true: whatever is made up from it is answered as it says, and never with a fault.

A tool (schemathesis) makes up requests for every operation, fitting and unfitting ones, and looks at the answers. How
many of each is small here, and smallest in `make test`; `ADE_TEST_EXAMPLES=200` asks for more.
"""

import asyncio
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import Failure
from schemathesis.engine import events, from_schema
from schemathesis.hooks import unregister

from ade.accounts.sessions import SignInConditions, open_session
from ade.server.openapi import document
from tests.depth import IS_DEEP
from tests.domain import ROUTES, AuthLevel, Role, get_user, list_tokens
from tests.server.conftest import ServerHarness, start_server
from tests.stores.urls import store_url

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("ADE_TEST_EXAMPLES", "3" if IS_DEEP else "1"))
REFUSED = [400, 401, 403, 404, 405, 406, 409, 412, 413, 414, 415, 422, 428, 429, 431]
# What fits the description is never refused for its form. What it says may still be refused by a rule that no schema
# can tell, such as a deadline before the start; each of those has a code of its own.
OF_FORM = frozenset({
    "bad_request", "invalid_json", "invalid_body", "unsupported_media_type", "payload_too_large", "uri_too_long",
    "headers_too_large", "not_found", "not_acceptable",
})  # fmt: skip
BY_SESSION = [route.operation for route in ROUTES if route.door is AuthLevel.SESSION]
CHECKS = {
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "positive_data_acceptance", "negative_data_rejection", "missing_required_header",
    "ignored_auth", "unsupported_method", "allow_header_conformance", "use_after_free", "ensure_resource_availability",
}  # fmt: skip
OFF = {
    "object_level_authorization": "it takes a second account; `test_foreign_objects` has one of each kind",
}
KEY = re.compile(r"[!#-\[\]-~]{1,255}")

Adapt = Callable[[Any], None]


def test_the_description_is_one_of_openapi_3_1() -> None:
    described = json.loads(document())
    schemathesis.openapi.from_dict(described).validate()  # by the schema that the standard comes with
    described["paths"]["/livez"]["get"]["parameters"] = [{"name": 1}]
    with pytest.raises(jsonschema_rs.ValidationError):
        schemathesis.openapi.from_dict(described).validate()


def test_every_check_is_on_or_has_a_reason() -> None:
    schemathesis.openapi.from_dict(json.loads(document()))  # with the first one all are known
    known = set(schemathesis.checks.CHECKS.get_all_names())
    assert known == CHECKS | set(OFF)


@pytest.mark.deep
@pytest.mark.parametrize("store", ["sqlite", pytest.param("valkey", marks=pytest.mark.long)])
async def test_whatever_fits_or_does_not_is_answered_as_described(store: str, tmp_path: Any) -> None:
    flags = {"http.login_rate": "none"}
    async with start_server(store_url(store, tmp_path), tmp_path, **flags) as server:
        token = await server.token(Role.ADMIN)
        async with asyncio.timeout(60):
            while (await server.ask("GET", "/readyz", by=None)).status != 200:
                pass
        [own] = await list_tokens(server.stores, "the-admin")
        spared = frozenset({own.account, own.id})
        run = Run(server, {"Authorization": f"Bearer {token}"}, prepared, spared=spared)
        found = await asyncio.to_thread(run.failures)
        assert found == [], "\n".join(found)
        assert run.operations == {route.operation for route in ROUTES}
        assert (await server.ask("GET", "/api/v1/me", by=Role.ADMIN)).status == 200  # nobody was shut out on the way


@pytest.mark.deep
async def test_what_takes_a_session_is_answered_as_described(sqlite_server: ServerHarness) -> None:
    server, loop = sqlite_server, asyncio.get_running_loop()
    await server.person("ada", Role.ADMIN)
    cookie = f"ade-session-{server.url.rpartition(':')[2]}"

    async def opened_session() -> str:
        user = await get_user(server.stores, "ada")  # as she is now: some requests change her password
        return (await open_session(server.stores, user, SignInConditions()))[0]

    def signed_in(case: Any) -> None:
        """Each request has a session of its own, for some of them end it."""
        opened = asyncio.run_coroutine_threadsafe(opened_session(), loop).result(30)
        case.headers = {**(case.headers or {}), "Cookie": f"{cookie}={opened}", "Origin": server.url}

    run = Run(server, {}, signed_in, only=BY_SESSION, without="ignored_auth")  # there is always a session
    found = await asyncio.to_thread(run.failures)
    assert found == [], "\n".join(found)
    assert run.operations == set(BY_SESSION)


class Run:
    """All that the tool makes up for one server."""

    def __init__(
        self,
        server: ServerHarness,
        headers: dict[str, str],
        adapt: Adapt,
        *,
        spared: frozenset[str] = frozenset(),  # values that no path names: without these nobody could ask any more
        only: list[str] | None = None,
        without: str = "",
    ) -> None:
        checks = {name: {"enabled": name in CHECKS and name != without} for name in (*CHECKS, *OFF)}
        for name in ("negative_data_rejection", "missing_required_header"):
            checks[name]["expected-statuses"] = REFUSED  # type: ignore[assignment]
        config = SchemathesisConfig.from_dict({
            "base-url": server.url,
            "headers": headers,
            "seed": 1,
            "continue-on-failure": True,
            "checks": checks,
            "generation": {"max-examples": EXAMPLES, "database": "none", "allow-x00": False},  # no text has NUL
            "phases": {
                "coverage": {"enabled": IS_DEEP or only is not None},  # every bound and every header of every operation
                "stateful": {"max-steps": 6, "generation": {"max-examples": 2 * EXAMPLES}},
            },
        })  # fmt: skip
        schema = schemathesis.openapi.from_dict(json.loads(document()), config=config)
        self._schema = schema if only is None else schema.include(operation_id=only)
        self._adapt = adapt
        self._spared = spared
        self.operations: set[str] = set()

    def failures(self) -> list[str]:
        def filter_case(context: Any, case: Any) -> bool:
            return self._spared.isdisjoint(str(value) for value in (case.path_parameters or {}).values())

        self._schema.hook(filter_case)
        self._schema.hook(filter_failure)
        found: list[str] = []
        with hooked(self._adapt):
            for event in from_schema(self._schema).execute():
                found += self._told(event)
        return found

    def _told(self, event: events.EngineEvent) -> Iterator[str]:
        if isinstance(event, events.NonFatalError):
            yield f"{event.label}: {event.value}"
        elif isinstance(event, events.FatalError):
            raise event.exception
        elif isinstance(event, events.ScenarioFinished):
            for node in event.recorder.cases.values():
                self.operations.add(node.value.operation.definition.raw["operationId"])
            for checks in event.recorder.checks.values():
                for check in checks:
                    if check.failure_info is not None:
                        failure = check.failure_info
                        yield f"{check.name}: {failure.failure.message} ({failure.code_sample[:1_000]})"


_numbers = itertools.count()


def prepared(case: Any) -> None:
    """What nobody can make up from a description: keys that are new, cursors, names that workers have told of."""
    if KEY.fullmatch(str((case.headers or {}).get("Idempotency-Key", ""))):
        case.headers["Idempotency-Key"] = f"key-{next(_numbers)}"
    if case.meta is None or case.meta.generation.mode.is_negative:
        return
    for name in ("If-Match", "If-None-Match"):  # of patterns with quotes the tool makes none that fit
        if name in (case.headers or {}):
            case.headers[name] = '"1"'
    for name in ("cursor", "wait"):  # a cursor is only good as it was answered; nobody waits here
        (case.query or {}).pop(name, None)
    if not isinstance(case.body, dict):
        return
    body = case.body = whole(case.body)
    body.pop("wait", None)
    if case.operation.definition.raw["operationId"] != "sign_in" and next(_numbers) % 8:
        body.pop("password", None)  # to hash them takes most of the time
    if case.operation.definition.raw["operationId"] in ("create_task", "create_tasks", "put_schedule"):
        for task in body.get("tasks", [body]):
            task["allow_unknown"] = True


def whole(value: Any) -> Any:
    """To a schema 6.0 is an integer too; ADE takes only what is written as one."""
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if is_whole else value


@contextmanager
def hooked(adapt: Adapt) -> Iterator[None]:
    def before_call(context: Any, case: Any, kwargs: Any) -> None:
        adapt(case)

    schemathesis.hook(before_call)
    try:
        yield
    finally:
        unregister(before_call)


def filter_failure(context: Any, failure: Failure, case: Any, response: Any) -> bool:
    match type(failure).__name__:
        case "RejectedPositiveData":
            return json.loads(response.content)["code"] in OF_FORM
        case "AcceptedNegativeData":
            return "at cookie" not in failure.message  # every request gets a session where one is needed
        case "IgnoredAuth":
            return "429" not in failure.message  # of many wrong tokens from one address most are only counted
    return True

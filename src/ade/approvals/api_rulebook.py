"""HTTP operations on the rulebook: read, replace, list its versions, and check a task against it."""

import re
from typing import Annotated, Any

from msgspec import Meta, field

from ade.accounts.model import Permission
from ade.approvals import repository as approvals_repository
from ade.approvals.errors import UnknownRulebook
from ade.approvals.policy_check import Findings, PolicyCheckRequest, check
from ade.approvals.repository import RulebookVersion
from ade.approvals.rulebook_document import read_rulebook
from ade.server.context import RequestContext, Services, acting, cut
from ade.server.operation import ETagUse, ReadRule, operation
from ade.server.pagination import Page
from ade.server.request_types import Form

# Request forms.


Rules = dict[str, Any]  # the rulebook as a document, as written in TOML or JSON
_Word = Annotated[str, Meta(min_length=1, max_length=500)]


class ApplyRulebook(Form, kw_only=True):
    """A whole rulebook to put in force."""

    rules: Rules


class ListRulebookVersions(Form):
    """Page of the rulebook versions."""

    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20  # each item contains a whole rulebook


class CheckPolicies(Form, kw_only=True):
    """A task or tool call to check, as far as it is known. Without a score, its risk is assessed from stored data."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    tool: Annotated[str, Meta(max_length=200)] | None = None  # the tool that an agent would call
    args: dict[str, Any] = field(default_factory=dict)
    resources: Annotated[list[_Word], Meta(max_length=200)] = field(default_factory=list)
    tags: Annotated[list[_Word], Meta(max_length=200)] = field(default_factory=list)
    score: Annotated[float, Meta(ge=0, le=100)] | None = None
    rules: Rules | None = None  # check these instead of the rules in force; requires the `operate` permission


_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@operation("GET /policies", reads=ReadRule.SHARED, permission=Permission.READ, tag=ETagUse.ANSWERED)
async def get_rulebook(services: Services, request: RequestContext) -> RulebookVersion:
    """The rulebook: guard rules, and who must approve what. Version 0 is empty: no rulebook was applied yet."""
    return await approvals_repository.newest(services.stores)


@operation("PUT /policies", permission=Permission.ADMINISTER, tag=ETagUse.REQUIRED)
async def apply_rulebook(services: Services, request: RequestContext, body: ApplyRulebook) -> RulebookVersion:
    """Put another rulebook in force. If-Match names the version that this one was made from; `*` replaces any version.
    A rulebook equal to the newest one creates no new version. Raises InvalidRulebook and StaleWrite."""
    rulebook = read_rulebook(body.rules)
    seen = request.expected_version((await approvals_repository.newest(services.stores)).version)
    applied = await approvals_repository.apply(services.stores, rulebook, actor=acting(request), seen=seen)
    return await approvals_repository.edition(services.stores, applied.version)


@operation("GET /policies/versions", reads=ReadRule.SHARED, permission=Permission.READ)
async def list_rulebook_versions(
    services: Services, request: RequestContext, query: ListRulebookVersions
) -> Page[RulebookVersion]:
    """All rulebooks there were. The newest first."""
    return cut("rulebook versions", query, await approvals_repository.history(services.stores))


@operation("GET /policies/versions/{version}", reads=ReadRule.SHARED, permission=Permission.READ)
async def get_rulebook_version(services: Services, request: RequestContext, version: str) -> RulebookVersion:
    """One of them."""
    if not _VERSION.fullmatch(version):
        raise UnknownRulebook(f"{version[:60]!r} is not a version of the rulebook; versions start at 1")
    return await approvals_repository.edition(services.stores, int(version))


@operation("POST /policies/check", reads=ReadRule.SHARED, permission=Permission.READ, mutates=False)
async def check_policies(services: Services, request: RequestContext, body: CheckPolicies) -> Findings:
    """What the rules say about a task, without storing it. Checking rules other than those in force takes an operator,
    because evaluating them costs the server. Raises InvalidRulebook, InvalidPolicy and NotPermitted."""
    if body.rules is not None:
        request.require(Permission.OPERATE)
    question = PolicyCheckRequest(
        name=body.name,
        tool=body.tool,
        arguments=body.args,
        resources=body.resources,
        tags=body.tags,
        score=body.score,
    )
    return await check(services.stores, question, None if body.rules is None else read_rulebook(body.rules))

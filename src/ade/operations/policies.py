"""The rulebook: read, applied as a whole, and asked what it would say."""

import re

from ade.core.accounts.permissions import Permission
from ade.core.approvals.refusals import UnknownRulebook
from ade.core.approvals.rulebook_reading import read_rulebook
from ade.core.web.forms.policies import ApplyRulebook, CheckPolicies, ListRulebookVersions
from ade.governance import rulebook as use_cases
from ade.governance.checking import Findings, Question, check
from ade.governance.rulebook import Edition
from ade.operations.acting import acting
from ade.operations.kit import Asked, Office, Page
from ade.operations.paging import cut
from ade.operations.versions import meant

_VERSION = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


async def get_rulebook(office: Office, asked: Asked) -> Edition:
    """Version 0 says nothing: nobody has applied one yet."""
    return await use_cases.newest(office.stores)


async def apply_rulebook(office: Office, asked: Asked, body: ApplyRulebook) -> Edition:
    """If-Match names the version that this one was made from; `*` replaces whichever there is.

    One that says the same as the newest makes no new version. Raises InvalidRulebook and StaleWrite.
    """
    rulebook = read_rulebook(body.rules)
    seen = meant(asked, (await use_cases.newest(office.stores)).version)
    applied = await use_cases.apply(office.stores, rulebook, actor=acting(asked), seen=seen)
    return await use_cases.edition(office.stores, applied.version)


async def list_rulebook_versions(office: Office, asked: Asked, query: ListRulebookVersions) -> Page[Edition]:
    """The newest first."""
    return cut("rulebook versions", query, await use_cases.history(office.stores))


async def get_rulebook_version(office: Office, asked: Asked, version: str) -> Edition:
    if not _VERSION.fullmatch(version):
        raise UnknownRulebook(f"{version[:60]!r} is no version of the rulebook; they are counted from 1")
    return await use_cases.edition(office.stores, int(version))


async def check_policies(office: Office, asked: Asked, body: CheckPolicies) -> Findings:
    """Nothing is stored. To try other rules than those in force takes an operator: what rules cost is theirs to say,
    and the server has to follow them to the end. Raises InvalidRulebook, InvalidPolicy and NotPermitted."""
    if body.rules is not None:
        asked.require(Permission.OPERATE)
    question = Question(
        name=body.name,
        tool=body.tool,
        arguments=body.args,
        resources=body.resources,
        tags=body.tags,
        score=body.score,
    )
    return await check(office.stores, question, None if body.rules is None else read_rulebook(body.rules))

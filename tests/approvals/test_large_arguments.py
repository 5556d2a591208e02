"""The guard looks at large arguments while all others go on."""

import asyncio
import threading

import pytest
from msgspec import Raw, json

from ade.approvals import submission
from ade.approvals.guard import GuardCase, GuardOccasion, GuardRulesVerdict, rule_on
from ade.approvals.submission import LARGE, apply_guard
from tests.domain import read_rulebook

BOOK = read_rulebook({"guard": [{"do": "deny", "when": {"*": ["*rm -rf*"]}, "reason": "never"}]})


def _case(size: int, last: str) -> GuardCase:
    return GuardCase(name="greet", arguments=Raw(json.encode({"words": ["x" * 10] * (size // 10), "last": last})))


@pytest.mark.parametrize("size", [0, 10 * LARGE])
async def test_what_is_large_is_judged_as_what_is_small(size: int) -> None:
    assert (await apply_guard(BOOK, _case(size, "rm -rf /"), GuardOccasion.RUN)).verdict is GuardRulesVerdict.DENY
    assert (await apply_guard(BOOK, _case(size, "ls"), GuardOccasion.RUN)).verdict is GuardRulesVerdict.ALLOW
    assert (
        await apply_guard(BOOK, GuardCase(name="greet", arguments=Raw(b"x" * size)), GuardOccasion.RUN)
    ).verdict is GuardRulesVerdict.DENY
    given = {"words": ["x" * 10] * (size // 10), "odd": object()}
    assert (
        await apply_guard(BOOK, GuardCase(name="greet", arguments=given), GuardOccasion.RUN)
    ).verdict is GuardRulesVerdict.DENY


async def test_others_go_on_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge waits here for something that only happens if the event loop goes round."""
    goes_round, at_once, most = threading.Event(), 0, 0

    def slow(*asked: object) -> object:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        assert goes_round.wait(20)
        at_once -= 1
        return rule_on(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(submission, "rule_on", slow)
    jobs = [asyncio.ensure_future(apply_guard(BOOK, _case(2 * LARGE, "ls"), GuardOccasion.RUN)) for _ in range(3)]
    await asyncio.sleep(0)
    goes_round.set()
    assert [ruling.verdict for ruling in await asyncio.gather(*jobs)] == [GuardRulesVerdict.ALLOW] * 3
    assert most == 1

"""The guard looks at large arguments while all others go on."""

import asyncio
import threading

import pytest
from msgspec import Raw, json

from ade.core.approvals.rulebook_reading import read_rulebook
from ade.core.guard import Case, Occasion, Verdict, rule_on
from ade.governance.approvals import judging
from ade.governance.approvals.judging import LARGE, judge

BOOK = read_rulebook({"guard": [{"do": "deny", "when": {"*": ["*rm -rf*"]}, "reason": "never"}]})


def _case(size: int, last: str) -> Case:
    return Case(name="greet", arguments=Raw(json.encode({"words": ["x" * 10] * (size // 10), "last": last})))


@pytest.mark.parametrize("size", [0, 10 * LARGE])
async def test_what_is_large_is_judged_as_what_is_small(size: int) -> None:
    assert (await judge(BOOK, _case(size, "rm -rf /"), Occasion.RUN)).verdict is Verdict.DENY
    assert (await judge(BOOK, _case(size, "ls"), Occasion.RUN)).verdict is Verdict.ALLOW
    assert (await judge(BOOK, Case(name="greet", arguments=Raw(b"x" * size)), Occasion.RUN)).verdict is Verdict.DENY
    given = {"words": ["x" * 10] * (size // 10), "odd": object()}
    assert (await judge(BOOK, Case(name="greet", arguments=given), Occasion.RUN)).verdict is Verdict.DENY


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

    monkeypatch.setattr(judging, "rule_on", slow)
    jobs = [asyncio.ensure_future(judge(BOOK, _case(2 * LARGE, "ls"), Occasion.RUN)) for _ in range(3)]
    await asyncio.sleep(0)
    goes_round.set()
    assert [ruling.verdict for ruling in await asyncio.gather(*jobs)] == [Verdict.ALLOW] * 3
    assert most == 1

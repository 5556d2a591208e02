"""People respond to a step of a run instead of approving it: it approves nothing, and the run continues."""

from typing import Any

import pytest

from ade import ConflictOfInterest, GateClosed, HoldResponse, NotEligible, Status, TaskHandle
from ade.approvals.audit_check import LoggedRecords
from ade.approvals.decisions import submit
from ade.errors import InvalidTask
from tests.approvals.scene import APPROVE, CHANGES, ONE, REJECT, RESPOND, Scene
from tests.domain import ApprovalProof, Decision, GateState

TWO_FOR_ALL = {"id": "two", "rules": [{"needed": 2, "roles": ["reviewer"]}], "names": ["publish"]}


async def held(shop: Scene, **args: Any) -> TaskHandle[Any]:
    handle = await shop.app.enqueue("publish", {"page": "home", **args}, author="ada")
    await shop.kit.drain()
    assert await handle.status() is Status.REVIEWING
    return handle


async def ended(shop: Scene, handle: TaskHandle[Any]) -> Status:
    await shop.kit.drain()
    assert await audited(shop, handle) == []
    return await handle.status()


async def audited(shop: Scene, handle: TaskHandle[Any]) -> list[str]:
    """What an audit reports about the log, and about the record where it differs from the log."""
    records = LoggedRecords(ApprovalProof())
    wrong = [fault for event in await shop.stores.events.read(0, 10_000) if (fault := records.add(event)) is not None]
    return [*wrong, *records.task_differences(await handle.get())]


async def test_the_handler_gets_the_text_and_who_responded(shop: Scene) -> None:
    handle = await held(shop)
    after = await shop.vote(handle, "bob", RESPOND, reason="", text="Wait for the new logo.")

    assert after.status is Status.PENDING
    assert await ended(shop, handle) is Status.COMPLETED
    [response] = shop.responses
    assert response == HoldResponse(is_approved=False, text="Wait for the new logo.", by="bob")
    assert not response


async def test_an_approval_is_a_response_that_is_true(shop: Scene) -> None:
    handle = await held(shop)
    await shop.vote(handle, "bob", reason="looks good")

    assert await ended(shop, handle) is Status.COMPLETED
    [response] = shop.responses
    assert (bool(response), response.text, response.args, response.by) == (True, "looks good", None, "bob")


async def test_a_handler_that_does_not_read_responses_is_denied_and_never_gets_past_the_step(shop: Scene) -> None:
    handle = await held(shop, reads=False)
    await shop.vote(handle, "bob", RESPOND, reason="", text="Wait for the new logo.")

    assert await ended(shop, handle) is Status.FAILED
    error = (await handle.get()).error
    assert error is not None
    assert (error.type, error.retryable) == ("StepDenied", False)
    assert error.message == "bob did not approve: go live. Response: Wait for the new logo."
    assert shop.responses == []


async def test_a_rejection_ends_the_run_unless_the_reviewer_lets_it_continue(shop: Scene) -> None:
    stopped, continued = await held(shop), await held(shop, page="news")
    await shop.vote(stopped, "bob", REJECT)
    await shop.vote(continued, "bob", REJECT, go_on=True, reason="not this page")

    assert await ended(shop, stopped) is Status.REJECTED
    assert await ended(shop, continued) is Status.COMPLETED
    assert shop.responses == [HoldResponse(is_approved=False, text="not this page", by="bob")]


async def test_a_response_stays_when_the_run_starts_again(shop: Scene) -> None:
    """The handler asks about another step after the response, so it starts three times; it is asked about each once."""
    handle = await held(shop)
    await shop.vote(handle, "bob", RESPOND, reason="", text="no")
    await shop.kit.drain()
    task = await handle.get()
    assert task.review is not None
    [gate_] = task.review.gates
    assert (gate_.state, gate_.votes[0].text, gate_.votes[0].digest) == (GateState.RESPONDED, "no", gate_.digest)
    assert not gate_.is_over


async def test_the_events_record_the_response(shop: Scene) -> None:
    handle = await held(shop)
    gate_ = await shop.gate(handle)
    await shop.vote(handle, "bob", RESPOND, reason="", text="no")

    [event] = [event async for event in handle.events() if event.type == "approval.responded"]
    assert (event.actor, event.payload["approval"], event.payload["digest"]) == ("bob", gate_.id, gate_.digest)
    vote_ = event.payload["vote"]
    assert isinstance(vote_, dict)
    assert (vote_["text"], vote_["decision"]) == ("no", "respond")
    assert (await shop.types(handle))[-2:] == ["approval.responded", "task.queued"]


# Edited arguments.


async def test_edited_arguments_need_the_approval_of_others(shop: Scene) -> None:
    handle = await held(shop)
    first = await shop.gate(handle)
    await shop.vote(handle, "bob", RESPOND, reason="", text="the test page first", args={"page": "test"})
    second = await shop.gate(handle)

    assert (await handle.status(), second.about, second.votes) == (Status.REVIEWING, {"page": "test"}, ())
    assert (second.id != first.id, second.digest != first.digest) == (True, True)
    with pytest.raises(ConflictOfInterest):
        await shop.vote(handle, "bob")
    await shop.vote(handle, "cy")

    assert await ended(shop, handle) is Status.COMPLETED
    [response] = shop.responses
    expected = HoldResponse(is_approved=True, text="the test page first", args={"page": "test"}, by="bob")
    assert response == expected


async def test_edited_arguments_need_the_whole_quorum(shop: Scene) -> None:
    await shop.rules(TWO_FOR_ALL)
    handle = await shop.app.enqueue("publish", {"page": "home"}, author="root")
    await shop.kit.drain()
    await shop.vote(handle, "ada")  # one of two
    await shop.vote(handle, "bob", RESPOND, reason="", args={"page": "test"})
    await shop.vote(handle, "cy")
    assert await handle.status() is Status.REVIEWING  # what ada approved was another page
    await shop.vote(handle, "dee")

    assert await ended(shop, handle) is Status.COMPLETED
    assert [response.args for response in shop.responses] == [{"page": "test"}]


async def test_an_edit_that_is_approved_is_not_what_a_handler_gets_that_reads_no_responses(shop: Scene) -> None:
    """It would do what it asked about, which was not approved."""
    handle = await held(shop, reads=False)
    await shop.vote(handle, "bob", RESPOND, reason="", text="smaller", args={"page": "test"})
    await shop.vote(handle, "cy")

    assert await ended(shop, handle) is Status.FAILED
    error = (await handle.get()).error
    assert error is not None
    expected = 'bob did not approve: go live. Response: smaller Use these arguments instead: {"page":"test"}'
    assert error.message == expected
    assert shop.responses == []


async def test_an_edit_can_be_edited_and_the_last_one_is_approved(shop: Scene) -> None:
    handle = await held(shop)
    await shop.vote(handle, "bob", RESPOND, reason="", args={"page": "test"})
    await shop.vote(handle, "cy", RESPOND, reason="", args={"page": "home"})  # as it was at first
    for involved in ("bob", "cy"):
        with pytest.raises(ConflictOfInterest):
            await shop.vote(handle, involved)
    await shop.vote(handle, "dee")

    assert await ended(shop, handle) is Status.COMPLETED
    [response] = shop.responses
    assert (bool(response), response.args) == (True, None)


async def test_an_edit_that_is_answered_with_text_approves_nothing(shop: Scene) -> None:
    handle = await held(shop)
    await shop.vote(handle, "bob", RESPOND, reason="", args={"page": "test"})
    await shop.vote(handle, "cy", RESPOND, reason="", text="neither")

    assert await ended(shop, handle) is Status.COMPLETED
    assert shop.responses == [HoldResponse(is_approved=False, text="neither", by="cy")]


async def test_an_edit_after_a_request_for_changes_asks_again(shop: Scene) -> None:
    handle = await held(shop)
    await shop.vote(handle, "bob", CHANGES)
    assert await handle.status() is Status.DRAFT
    await shop.vote(handle, "bob", RESPOND, reason="", args={"page": "test"})
    assert await handle.status() is Status.REVIEWING
    await shop.vote(handle, "cy")

    assert await ended(shop, handle) is Status.COMPLETED
    assert [response.args for response in shop.responses] == [{"page": "test"}]


async def test_an_edit_does_not_stand_in_for_requested_changes(shop: Scene) -> None:
    """A task that is submitted again is compared with what changes were requested for."""
    handle = await held(shop)
    await shop.vote(handle, "bob", CHANGES)
    frozen = submit(await handle.get(), has_preview=False, preview_id=None, now=shop.kit.clock.now(), actor="ada")
    await shop.stores.tasks.commit(frozen)  # before it is assessed
    with pytest.raises(GateClosed, match="no run waits"):
        await shop.vote(handle, "cy", RESPOND, reason="", args={"page": "test"})
    assert (await shop.gate(handle)).state is GateState.CHANGES_REQUESTED


async def test_edited_arguments_stay_out_of_the_log(shop: Scene) -> None:
    """As what a step is about does: it might contain secrets."""
    handle = await held(shop)
    await shop.vote(handle, "bob", RESPOND, reason="", args={"page": "sesame"})

    assert "sesame" not in str([event async for event in handle.events()])


# Who may respond, and to what.


@pytest.mark.parametrize("voter", ["ada", "otto", "nobody"])
async def test_only_those_who_could_vote_may_respond(shop: Scene, voter: str) -> None:
    await shop.people(otto="operator")
    handle = await held(shop)
    for fields in ({"text": "no"}, {"args": {"page": "test"}}):
        with pytest.raises(NotEligible):
            await shop.vote(handle, voter, RESPOND, reason="", **fields)
    assert await handle.status() is Status.REVIEWING


async def test_a_response_names_the_digest_that_was_seen(shop: Scene) -> None:
    handle = await held(shop)
    seen = (await shop.gate(handle)).digest
    await shop.vote(handle, "bob", RESPOND, reason="", args={"page": "test"})
    with pytest.raises(Exception, match="changed since you reviewed it"):
        await shop.vote(handle, "cy", RESPOND, reason="", digest=seen, text="no")


async def test_a_whole_task_gets_no_response(shop: Scene) -> None:
    await shop.rules(ONE)
    handle = await shop.asked()
    for decision, fields in ((RESPOND, {"text": "no"}), (REJECT, {"go_on": True})):
        with pytest.raises(InvalidTask, match="no run waits"):
            await shop.vote(handle, "bob", decision, **fields)
    assert await handle.status() is Status.REVIEWING


@pytest.mark.parametrize(
    ("decision", "fields", "what"),
    [
        (RESPOND, {}, "needs a text or edited arguments"),
        (RESPOND, {"text": "  "}, "needs a text or edited arguments"),
        (RESPOND, {"text": "x" * 10_001}, "at most 10,000 characters"),
        (RESPOND, {"args": {"page": "home"}}, "approve them, or change them"),
        (RESPOND, {"args": {"page": "x" * 300_000}}, "at most 262,144 bytes"),
        (RESPOND, {"text": "no", "go_on": True}, "go_on is for a rejection"),
        (APPROVE, {"text": "yes"}, "only a response has text"),
        (APPROVE, {"go_on": True}, "go_on is for a rejection"),
        (REJECT, {"args": {"page": "test"}}, "only a response has text or arguments"),
    ],
)
async def test_a_response_that_makes_no_sense_changes_nothing(
    shop: Scene, decision: Decision, fields: dict[str, Any], what: str
) -> None:
    handle = await held(shop)
    before = await handle.get()
    with pytest.raises(InvalidTask, match=what):
        await shop.vote(handle, "bob", decision, **fields)
    assert await handle.get() == before


async def test_the_same_response_twice_counts_once_and_another_comes_too_late(shop: Scene) -> None:
    handle = await held(shop)
    first = await shop.gate(handle)
    for _ in range(2):
        await shop.vote(handle, "bob", RESPOND, reason="", digest=first.digest, text="no")
    with pytest.raises(GateClosed):
        await shop.vote(handle, "cy", RESPOND, reason="", digest=first.digest, text="no")
    assert (await shop.types(handle)).count("approval.responded") == 1


async def test_a_handle_responds_too(shop: Scene) -> None:
    handle = await held(shop)
    gate = await shop.gate(handle)
    await handle.vote("respond", by="bob", approval=gate.id, digest=gate.digest, text="later")

    assert await ended(shop, handle) is Status.COMPLETED
    assert shop.responses[0].text == "later"

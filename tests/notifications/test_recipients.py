"""Who is notified of what: voters once per approval, authors of decisions, and people of changes to their accounts."""

import pytest
from msgspec import Raw, structs

from ade import Task
from ade.approvals import delegations
from ade.errors import InvalidNotification
from ade.notifications import service
from tests.domain import (
    Decision,
    Delegation,
    Event,
    Permission,
    TooManyRequests,
    User,
    UserChanges,
    add_user,
    change_user,
    create_token,
)
from tests.notifications.conftest import ONE, Office
from tests.notifications.domain import (
    OUTBOX,
    BreakThrough,
    ChannelKind,
    Notification,
    NotificationKind,
    Outbox,
    PreferenceChanges,
    add_channel,
    change_preferences,
    decision_of,
    delivery_to,
    dispatch,
    follow,
    get_preferences,
    list_deliveries,
    remove_channel,
    set_password,
    sweep_reviews_job,
    switch,
)


async def test_everyone_who_can_vote_is_asked_and_the_author_is_not(office: Office) -> None:
    await office.channels("ada", "rita", "rob", "root")
    task = await office.pay("ada", description="rent for May")
    await office.run()

    assert office.recipients() == ["rita", "rob"]
    [text] = office.told("rita")
    for part in (
        "Approval needed: pay",
        "Description: rent for May",
        "Requested by: Ada Lovelace (ada)",
        "Reason: money leaves",
        f"Review: ade approvals show {task.id}",
        "Risk: ",
        "Due: ",
    ):
        assert part in text


async def test_an_owner_is_not_asked_about_what_their_program_wants(office: Office) -> None:
    await office.channels("mallory", "rita")
    await office.pay("bot")
    await office.run()

    assert office.recipients() == ["rita"]


async def test_a_person_with_two_accounts_is_asked_once(office: Office) -> None:
    await add_user(office.stores, User(id="rita-phone", person="rita", roles=frozenset({"reviewer"})))
    await change_user(office.stores, "rita", UserChanges(person="rita"))
    await office.channels("rita", "rita-phone")
    await office.pay()
    await office.run()

    assert len(office.recipients()) == 1


async def test_whoever_becomes_eligible_by_escalation_is_notified_then_and_no_one_twice(office: Office) -> None:
    first = {"needed": 1, "users": ["rita"]}
    step = {"after": "1h", "roles": ["reviewer"]}
    await office.rules({"id": "one", "rules": [first], "steps": [step], "expires_after": "2d"})
    await office.channels("rita", "rob", "rosa")
    await office.pay()
    await office.run()
    assert office.recipients() == ["rita"]

    office.clock.advance(3_700)
    assert await sweep_reviews_job(office.stores, office.payloads)
    await office.run()
    await office.run()

    assert office.recipients() == ["rita", "rob", "rosa"]
    assert "Approval needed (escalated): pay" in office.told("rob")[0]


async def test_the_author_is_notified_of_the_decision_with_its_reason(office: Office) -> None:
    await office.channels("ada", "rita")
    for decision, heading in (
        (Decision.APPROVE, "Approved: pay"),
        (Decision.REJECT, "Rejected: pay"),
        (Decision.REQUEST_CHANGES, "Changes requested: pay"),
    ):
        task = await office.pay("ada")
        await office.vote(task, "rita", decision, "because of May")
        office.receiver.messages.clear()
        await office.run()
        [text] = office.told("ada")
        assert heading in text
        assert "By: rita" in text
        assert "because of May" in text or decision is Decision.APPROVE


def test_the_text_of_a_response_is_in_the_notification_of_the_author() -> None:
    task = Task(id="019aaaaa-aaaa-7aaa-8aaa-aaaaaaaaaaaa", name="pay", author_id="ada")
    vote = {"voter": "rita", "text": "use the other account", "reason": ""}
    event = Event(type="approval.responded", at=1, seq=1, task_id=task.id, actor="rita", payload={"vote": vote})
    found = decision_of(task, event, {})
    assert found is not None
    account, notification = found
    assert (account, notification.outcome, notification.reason) == ("ada", "responded", "use the other account")


async def test_the_owner_is_notified_of_decisions_about_their_program(office: Office) -> None:
    await office.channels("mallory")
    task = await office.pay("bot")
    await office.vote(task, "rita", Decision.REJECT, "no")
    await office.run()

    assert office.recipients() == ["mallory"]


async def test_the_author_is_notified_when_no_one_answered_in_time(office: Office) -> None:
    await office.channels("ada")
    await office.pay("ada")
    office.clock.advance(3 * 86_400)
    assert await sweep_reviews_job(office.stores, office.payloads)
    await office.run()

    assert "Expired: pay" in office.told("ada")[0]


async def test_what_was_decided_before_the_message_left_is_not_sent(office: Office) -> None:
    await office.channels("rob", "rosa")
    task = await office.pay()
    await office.collect()
    await office.vote(task, "rita")
    decisions = await office.run()

    assert office.receiver.messages == []
    assert "it was decided in the meantime" in {decision.reason for decision in decisions}


async def test_changes_of_an_account_by_someone_else_reach_its_person_once(office: Office) -> None:
    await office.channels("rita", "root")
    await change_user(office.stores, "rita", UserChanges(roles=frozenset({"viewer"})), actor="root")
    await change_user(office.stores, "rita", UserChanges(display_name="Rita"), actor="rita")
    await change_user(office.stores, "rita", UserChanges(display_name="R."), actor="root")
    await office.run()

    texts = office.told("rita")
    assert len(texts) == 2
    roles, name = sorted(texts, key=len, reverse=True)
    assert "The roles of your account were changed" in roles
    assert "roles are now viewer" in roles
    assert "Your account was changed" in name
    assert "Reason: display_name" in name
    assert all("By: root" in text for text in texts)
    assert office.recipients() == ["rita", "rita"]


async def test_a_password_that_someone_else_sets_is_reported(office: Office) -> None:
    await office.channels("rita")
    await set_password(office.stores, "rita", "correct horse battery staple", actor="root")
    await office.run()

    [text] = office.told("rita")
    assert "The password of your account was set by another account, or through its login link" in text


async def test_a_token_is_reported_whoever_creates_it(office: Office) -> None:
    await office.channels("rita")
    scopes = frozenset({Permission.READ})
    await create_token(office.stores, "rita", scopes=scopes, lasts_ms=60_000, actor="root")
    await create_token(office.stores, "rita", scopes=scopes, lasts_ms=60_000, actor="rita")
    await office.run()

    texts = office.told("rita")
    assert len(texts) == 2
    assert all("An access token was created for your account" in text for text in texts)


@pytest.mark.parametrize("actor", ["rita", "root"])
async def test_a_delegation_is_reported_to_the_one_whose_vote_it_is(office: Office, actor: str) -> None:
    await office.channels("rita", "rob")
    now = office.clock.now()
    lent = Delegation(id="", delegator="rita", delegate="rob", starts_at=now, ends_at=now + 60_000)
    await delegations.create(office.stores, lent, actor=actor)
    await office.run()

    [text] = office.told("rita")
    assert "The vote of your account was delegated" in text
    assert "rob can vote on behalf of rita" in text
    assert office.recipients() == ["rita"]


async def test_removing_the_only_channel_first_does_not_hide_what_follows(office: Office) -> None:
    await office.channels("rita")
    [channel] = (await service.get_preferences(office.stores, "rita")).channels
    await remove_channel(office.stores, channel.id, account="rita", actor="root")
    await set_password(office.stores, "rita", "correct horse battery staple", actor="root")
    thief = await add_channel(office.stores, "rita", ChannelKind.EMAIL, "thief@example.org", actor="root")
    office.owner[thief.id] = "thief"
    await office.run()

    texts = "".join(office.told("rita"))
    for text in (
        "A notification channel was removed from your account",
        "The password of your account was set by another account",
        "A notification channel was added to your account",
    ):
        assert text in texts


async def test_a_channel_at_a_second_account_does_not_redirect_its_news(office: Office) -> None:
    await add_user(office.stores, User(id="rita-ops", person="rita", roles=frozenset({"operator"})))
    await office.channels("rita")
    thief = await add_channel(office.stores, "rita-ops", ChannelKind.EMAIL, "thief@example.org", actor="root")
    office.owner[thief.id] = "thief"
    await set_password(office.stores, "rita-ops", "correct horse battery staple", actor="root")
    await office.run()

    texts = "".join(office.told("rita"))
    assert "A notification channel was added to your account" in texts
    assert "The password of your account was set by another account" in texts


async def test_linking_or_unlinking_an_account_is_reported_to_both_people(office: Office) -> None:
    await add_user(office.stores, User(id="rita-ops", person="rita", roles=frozenset({"operator"})))
    await office.channels("rita", "root")
    await change_user(office.stores, "rita-ops", UserChanges(person=""), actor="root")
    await change_user(office.stores, "rita", UserChanges(person="root"), actor="root")
    await change_user(office.stores, "rita", UserChanges(roles=frozenset()), actor="root")
    await office.run()

    texts = office.told("rita")
    assert sum("Reason: person" in text for text in texts) == 2
    assert sum("The roles of your account were changed" in text for text in texts) == 1, "by whoever is now the same"


async def test_the_former_owner_of_a_program_learns_of_the_new_one(office: Office) -> None:
    await office.channels("mallory", "rob")
    await change_user(office.stores, "bot", UserChanges(owner="rob"), actor="root")
    await office.run()

    assert office.recipients() == ["mallory", "rob"]


async def test_changed_preferences_are_reported_whoever_changes_them(office: Office) -> None:
    await office.channels("rita")
    changes = PreferenceChanges(quiet_hours="00:00-23:59", break_through=BreakThrough.NEVER)
    await change_preferences(office.stores, "rita", changes, actor="rita")
    await office.run()

    [text] = office.told("rita")
    assert "The notification preferences of your account were changed" in text


async def test_changes_and_addresses_are_limited_so_that_no_one_floods_strangers(office: Office) -> None:
    for number in range(20):
        made = await office.channel("rita", target=f"stranger{number}@example.org")
        if number >= 9:
            await remove_channel(office.stores, made.id, account="rita", actor="rita")
    with pytest.raises(InvalidNotification, match="removed 11 channels within a week"):
        await office.channel("rita", target="one-more@example.org")
    office.clock.advance(7 * 86_400)
    await office.channel("rita", target="one-more@example.org")

    async def change_often() -> None:
        for number in range(100):
            changes = PreferenceChanges(quiet_hours=f"0{number % 2}:00-07:00")
            await change_preferences(office.stores, "rita", changes, actor="rita")

    with pytest.raises(TooManyRequests):
        await change_often()


async def test_a_stolen_token_cannot_add_or_remove_a_channel_unnoticed(office: Office) -> None:
    await office.channels("rita")
    added = await add_channel(office.stores, "rita", ChannelKind.EMAIL, "mallory@example.org", actor="rita")
    office.owner[added.id] = "rita"
    await office.run()
    await remove_channel(office.stores, added.id, account="rita", actor="rita")
    await office.run()

    texts = "".join(office.told("rita"))
    assert "A notification channel was added to your account" in texts
    assert "A notification channel was removed from your account" in texts


async def test_a_crash_after_any_step_neither_loses_nor_repeats_a_notification(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await office.channels("rita", "ada")
    task = await office.pay("ada")
    await office.vote(task, "rob", Decision.REJECT, "no")
    await office.pay("ada")

    class Crash(Exception):
        pass

    async def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as broken:  # outboxes are written, the cursor is not advanced
        broken.setattr(office.stores.events, "advance", crash)
        with pytest.raises(Crash):
            await follow(office.stores)
    while await follow(office.stores):
        pass
    with monkeypatch.context() as broken:  # deliveries are stored, their tasks are not
        broken.setattr(service, "enqueue", crash)
        with pytest.raises(Crash):
            await dispatch(office.stores, office.payloads)
    with monkeypatch.context() as broken:  # tasks are stored, the outbox still lists them
        put = OUTBOX.put

        def put_or_crash(record_id: str, record: Outbox, *, seen: int) -> object:
            if not record.sending:
                raise Crash
            return put(record_id, record, seen=seen)

        broken.setattr(OUTBOX, "put", put_or_crash)
        with pytest.raises(Crash):
            await dispatch(office.stores, office.payloads)
    await office.run()

    assert office.recipients() == ["ada", "rita"]


async def test_two_processes_that_follow_at_once_notify_once(office: Office) -> None:
    await office.channels("rita")
    await office.pay()
    before = await office.stores.events.cursors()
    await follow(office.stores)
    await office.stores.events.advance("another", 1)
    await service._take_in(  # the page that the other process has read
        office.stores,
        [event for event in await office.stores.events.read(before["notifications"], 100) if event.task_id],
        {"rita": await service.get_preferences(office.stores, "rita")},
    )
    await office.run()

    assert office.recipients() == ["rita"]


async def test_many_requests_at_once_become_one_message(office: Office) -> None:
    await office.channels("rita")
    for _ in range(30):
        await office.pay()
    await office.run()

    [text] = office.told("rita")
    assert text.count("Approval needed: pay") == 20
    assert "And 10 more." in text


async def test_arguments_are_left_out_unless_the_settings_ask_for_them(office: Office) -> None:
    await office.channels("rita", "rob")
    args = Raw(b'{"to":"mallory","iban":"DE00","api_token":"hunter2","url":"https://x:s3cret-pw@h/"}')
    await office.pay(args=args)
    await office.collect()
    *_, first, second = await office.tasks()
    await office.deliver(first)
    assert "mallory" not in office.receiver.messages[0][1]
    await office.deliver(second, shows_arguments=True)

    [text] = [text for _, text in office.receiver.messages[1:]]
    assert '"to":"mallory"' in text
    for secret in ("hunter2", "s3cret-pw"):
        assert secret not in text


async def test_channels_receive_only_what_happens_after_they_were_added(office: Office) -> None:
    await office.pay()
    await office.channels("rita")
    await office.run()

    assert not [text for text in office.told("rita") if "Approval needed" in text]


async def test_an_automatic_approval_notifies_no_one(office: Office) -> None:
    await office.channels("ada", "rita")
    policy = {**ONE, "auto_approve": "medium"}

    await office.rules(policy)
    await switch(office.stores, "auto_approve_low_risk", True, actor="root")
    await office.pay()
    await office.run()

    assert office.receiver.messages == []


async def test_more_than_the_outbox_holds_is_counted(office: Office) -> None:
    await office.channels("rita")
    task = await office.pay()
    await follow(office.stores)
    stored = await OUTBOX.get(office.stores, "rita")
    assert stored is not None
    [item] = stored.record.pending
    flood = [structs.replace(item, seq=item.seq + number) for number in range(1, 600)]
    after = stored.record.with_pending(flood)
    assert (len(after.pending), after.more) == (500, 100)
    assert task.id == item.task_id


async def test_a_flood_does_not_push_a_waiting_change_of_the_account_out_of_the_log(office: Office) -> None:
    """While the queue of deliveries is paused, requests could otherwise fill the log."""
    await office.channels("rita")
    await set_password(office.stores, "rita", "a password that root chose", actor="root")
    await office.collect()
    newest = await list_deliveries(office.stores, "rita", limit=1)
    log = service.deliveries_of("rita")
    for number in range(600):
        office.clock.advance(1)
        item = Notification(kind=NotificationKind.REVIEW, at=number, approval=f"task.{number}")
        [delivery] = [
            delivery_to("rita", channel, [item], more=0, now=office.clock.now())
            for channel in (await get_preferences(office.stores, "rita")).active
        ]
        await office.stores.documents.write([log.put(delivery.id, delivery, seen=0)])
    await service._clear_old(office.stores, "rita")

    stored = await list_deliveries(office.stores, "rita", limit=1_000)
    assert len(stored) == 501
    assert stored[-1] == newest[0]

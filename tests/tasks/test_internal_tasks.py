"""Attack: a failed preview or rollback is run again with other arguments, which no one approved and which never ran."""

import pytest
from msgspec import Raw, structs

from ade import Status, Task
from ade.errors import InvalidTask
from ade.tasks import decisions
from tests.domain import uuid7

NAMES = ["pay:rollback", "pay:preview", "notifications:deliver"]


@pytest.mark.parametrize("name", NAMES)
def test_its_arguments_cannot_be_changed_for_another_run(name: str) -> None:
    failed = Task(id=uuid7(1, b"0" * 10), name=name, source="system", status=Status.FAILED)
    with pytest.raises(InvalidTask, match="internal task"):
        decisions.replay(failed, now=2, args=Raw(b'{"to":"mallory"}'))
    assert decisions.replay(failed, now=2).after.args == failed.args


def test_the_delivery_of_a_notification_cannot_be_cancelled_or_discarded() -> None:
    waiting = Task(id=uuid7(1, b"0" * 10), name="notifications:deliver", source="system", status=Status.PENDING)
    with pytest.raises(InvalidTask, match="notifies a person"):
        decisions.cancel(waiting, "quiet", now=2)
    failed = structs.replace(waiting, status=Status.FAILED)
    with pytest.raises(InvalidTask, match="notifies a person"):
        decisions.discard(failed, "quiet", now=2)


@pytest.mark.parametrize("name", NAMES)
def test_nor_while_it_waits_for_approval(name: str) -> None:
    waiting = Task(id=uuid7(1, b"0" * 10), name=name, source="system", status=Status.DRAFT)
    with pytest.raises(InvalidTask, match="internal task"):
        decisions.edit(waiting, now=2, args=Raw(b'{"to":"mallory"}'))

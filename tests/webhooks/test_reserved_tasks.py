"""Tasks that send messages are ADE's own: nobody else can enqueue one."""

import pytest

from ade import Task
from ade.accounts.model import SYSTEM
from ade.errors import InvalidTask
from ade.tasks.admission import check_task
from tests.domain import DELIVER

ID = "01900000-0000-7000-8000-000000000001"


def test_only_the_system_may_order_a_message() -> None:
    check_task(Task(id=ID, name=DELIVER, source=SYSTEM))

    with pytest.raises(InvalidTask, match="internal task"):
        check_task(Task(id=ID, name=DELIVER))

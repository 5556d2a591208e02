"""What feeds on an inbox: a function that is given batch after batch."""

from collections.abc import Awaitable, Callable
from typing import Any

from ade.core.inbox.items import DequeuedBatch
from ade.core.inbox.notices import ClearReason
from ade.core.inbox.state import Inbox

# Called with a batch and its inbox as it was taken: `memory` is what was kept last, `lease` the right to write. It
# returns when all that the batch led to is stored, with what is to be found in `memory` next time; None leaves that as
# it is. After a crash it may be given the same items again.
Consume = Callable[[DequeuedBatch, Inbox], Awaitable[dict[str, Any] | None]]


class GiveUp(Exception):
    """Raised by a consumer: this batch shall not be tried again. Its items are cleared for this reason."""

    def __init__(self, reason: ClearReason, why: str = "") -> None:
        super().__init__(why or reason)
        self.reason = reason
        self.why = why

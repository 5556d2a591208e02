"""Calls of the section `inboxes`. Generated from the operations by `python -m docs.generate`."""
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from ade.client.section import Section

if TYPE_CHECKING:
    from ade.calls.call import Call
    from ade.core.inbox.notices import ClearReason
    from ade.core.web.answers import Page
    from ade.core.web.forms.inboxes import NewInboxItem
    from ade.insight.inboxes import Cleared, InboxLine, InboxView, PutItems


class InboxesCalls(Section):
    def list_inboxes(self, *, after: str = "", cursor: str | None = None, limit: int = 50) -> Call[Page[InboxLine]]:
        """Conversations, and what they have still to be told."""
        from ade.core.web.answers import Page
        from ade.core.web.forms.inboxes import ListInboxes
        from ade.insight.inboxes import InboxLine

        query = ListInboxes(after=after, cursor=cursor, limit=limit)
        return self._call("list_inboxes", Page[InboxLine], query=query)

    def get_inbox(self, inbox_id: str) -> Call[InboxView]:
        """One conversation's inbox."""
        from ade.insight.inboxes import InboxView

        return self._call("get_inbox", InboxView, inbox_id)

    def put_inbox_items(
        self, inbox_id: str, *, items: list[NewInboxItem], consumer: str | None = None, request_key: str | None = None,
    ) -> Call[PutItems]:
        """Tell a conversation something."""
        from ade.core.web.forms.inboxes import PutInboxItems
        from ade.insight.inboxes import PutItems

        body = PutInboxItems(items=items, consumer=consumer)
        return self._call("put_inbox_items", PutItems, inbox_id, body=body, key=request_key)

    def remove_inbox_item(self, inbox_id: str, item_id: str) -> Call[None]:
        """Take an item out."""
        return self._call("remove_inbox_item", type(None), inbox_id, item_id)

    def clear_inbox(
        self, inbox_id: str, *, reason: ClearReason, if_match: int | None = None, request_key: str | None = None,
    ) -> Call[Cleared]:
        """Empty an inbox."""
        from ade.core.web.forms.inboxes import ClearInbox
        from ade.insight.inboxes import Cleared

        body = ClearInbox(reason=reason)
        return self._call("clear_inbox", Cleared, inbox_id, body=body, if_match=if_match, key=request_key)

    def reset_inbox(self, inbox_id: str, *, request_key: str | None = None) -> Call[None]:
        """Forget what its consumer remembers."""
        return self._call("reset_inbox", type(None), inbox_id, key=request_key)

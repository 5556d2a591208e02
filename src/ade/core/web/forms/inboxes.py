"""What is said about inboxes of conversations."""

from typing import Annotated, Any

from msgspec import Meta

from ade.core.inbox.items import ItemKind, ItemSource
from ade.core.inbox.notices import ClearReason
from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import InboxName

Text = Annotated[str, Meta(max_length=200)]


class ListInboxes(Form):
    after: Text = ""  # only those whose id comes after this one
    cursor: str | None = None
    limit: PageSize = 50


class NewInboxItem(Form):
    """A message has `content`, every other kind has `text`. Whoever sends it pays for what the agent does about it."""

    kind: ItemKind = ItemKind.MESSAGE
    source: ItemSource = ItemSource.USER
    content: str | list[dict[str, Any]] | None = None
    text: str | None = None
    client_message_id: Text | None = None
    agent_id: Text | None = None
    conversation_id: Text | None = None
    cron_task_id: Text | None = None
    no_coalesce: bool = False
    key: Text | None = None  # it is put in once, however often it is sent under this key


class PutInboxItems(Form):
    """All or none of them, at the end, in their order."""

    items: Annotated[list[NewInboxItem], Meta(min_length=1, max_length=100)]
    consumer: Annotated[InboxName, Meta(max_length=200)] | None = (
        None  # who feeds on the inbox from now on, such as agent:coder
    )


class ClearInbox(Form):
    reason: ClearReason

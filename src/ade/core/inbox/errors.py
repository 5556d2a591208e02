"""What people are told about items of an inbox."""

from ade.core.errors import AdeError


class InvalidInboxItem(AdeError):
    """The item is not one that an inbox can hold. Nothing was stored; correct it and try again."""

    code = "invalid_inbox_item"


class InvalidInbox(AdeError):
    """The id of an inbox, the name of its consumer, or what it shall remember is not possible. Nothing was stored."""

    code = "invalid_inbox"


class UnknownInbox(AdeError):
    """Nothing was ever put into an inbox of this id, or it is long forgotten."""

    code = "unknown_inbox"


class UnknownInboxItem(AdeError):
    """No such item waits in the inbox: it was taken, removed or cleared, or never was there."""

    code = "unknown_inbox_item"


class InboxBusy(AdeError):
    """A batch of the inbox is out, and whoever has it would write over this. Nothing was stored."""

    code = "inbox_busy"


class InboxFull(AdeError):
    """The inbox takes no more items until somebody has taken some. Nothing was stored."""

    code = "inbox_full"

"""What people are told about items of an inbox."""

from ade.core.errors import AdeError


class InvalidInboxItem(AdeError):
    """The item is not one that an inbox can hold. Nothing was stored; correct it and try again."""

    code = "invalid_inbox_item"

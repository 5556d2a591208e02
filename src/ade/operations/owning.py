"""What is somebody's own. What is not is answered as if it did not exist, so that ids tell nothing."""

from ade.core.errors import AdeError
from ade.operations.kit import Asked, Office


async def check_own(office: Office, asked: Asked, author: str | None, unknown: AdeError) -> None:
    """Raise `unknown` unless the author is the caller, or a program that the caller owns."""
    if asked.caller is not None:
        from ade.governance.owning import require_own  # with all accounts, which commands on a file do not need

        await require_own(
            office.stores, asked.caller, author, unknown, operation=asked.operation, about=asked.path or unknown.detail
        )

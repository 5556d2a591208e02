"""Forms with a password or another secret in them, of which nothing gets into a log."""

from typing import Annotated

from msgspec import Meta

from ade.core.web.forms.tasks import Form

Password = Annotated[str, Meta(max_length=1_000)]
Secret = Annotated[str, Meta(min_length=1, max_length=200)]


class SecretForm(Form):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

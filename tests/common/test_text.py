"""A password in a URL is never shown."""

import pytest

from ade.common.text import without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///.ade/ade.db", "sqlite:///.ade/ade.db"),
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:hush@localhost:6379/0", "redis://:***@localhost:6379/0"),
        ("postgresql://ade:hush@host/db", "postgresql://ade:***@host/db"),
        ("postgresql://ade:hu@s/h@host/db", "postgresql://ade:***@host/db"),
        (
            "postgresql://ade@host/db?password=hush&sslmode=require",
            "postgresql://ade@host/db?password=***&sslmode=require",
        ),
    ],
)
def test_the_password_is_left_out_and_the_rest_stays(url: str, shown: str) -> None:
    assert without_password(url) == shown

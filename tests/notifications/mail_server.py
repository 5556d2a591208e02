"""A real SMTP server for the stories, which keeps what it accepts."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

PASSWORD = "correct horse battery staple"


class Mailbox:
    """The handler of an SMTP server: it stores accepted messages, and rejects the configured recipients."""

    def __init__(self, rejection: str = "") -> None:
        self.mails: list[Envelope] = []
        self.rejection = rejection
        self.users: list[str] = []

    async def handle_RCPT(  # noqa: N802 -- the name that aiosmtpd calls
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.rejection:
            return self.rejection
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.mails.append(envelope)
        return "250 stored"

    def check(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        is_good = isinstance(data, LoginPassword) and data.password == PASSWORD.encode()
        if is_good:
            self.users.append(data.login.decode())
        return AuthResult(success=is_good, handled=is_good)


@asynccontextmanager
async def mail_server(box: Mailbox, tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[int]:
    """A real SMTP server on loopback. Yields its port."""
    loop, made = asyncio.get_running_loop(), list[SMTP]()

    def visited() -> SMTP:
        made.append(SMTP(box, hostname="localhost", **options))
        return made[-1]

    server = await loop.create_server(visited, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in made:
            if isinstance(connection.transport, asyncio.WriteTransport):
                connection.transport.abort()
        await server.wait_closed()

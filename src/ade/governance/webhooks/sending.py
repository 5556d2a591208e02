"""Who sends messages: the only part that talks to the network, and that must not be talked into going astray."""

from typing import Protocol

from msgspec import Struct

from ade.core.webhooks.addresses import Reach
from ade.core.webhooks.judging import Answer
from ade.core.webhooks.targets import Target


class Message(Struct, frozen=True, kw_only=True):
    """A POST, ready to be sent. `headers` has all but Host, Content-Length and Connection, which are the sender's."""

    target: Target
    headers: dict[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Message({self.target.origin!r})"  # its path may be a secret


class Sender(Protocol):
    async def send(self, message: Message, reach: Reach) -> Answer:
        """POST the message once and answer what came of it. Whatever the other side does is an Answer, not an error;
        only cancellation passes through.

        - The name is resolved once. Each address it leads to is judged by `check_address(address, reach)`; the
          connection is made to one that passes, by its number, and never through a proxy from the environment. The
          peer of the connection is judged again. What is refused is an Answer with the refusal's sentence as `error`.
        - `Host` is `target.authority`; TLS names and checks `target.host`, with the usual roots and no exceptions.
        - The request line has `target.path` as it is. No redirect is followed: 3xx is an Answer like any other.
        - All of it takes 20 seconds at most, the connection 10 of them. Of the answer at most `READ_BYTES` of the body
          and 16 kB of headers are read, then the connection is closed. Nothing is unpacked (no Accept-Encoding).
        - `retry_after` is that header as it came, `duration_ms` is measured by a clock that never jumps.
        """

"""A few words of Redis's protocol, for environments that hold no client for it."""

import socket
from types import TracebackType
from urllib.parse import urlsplit

Reply = str | int | list["Reply"] | None


class Wire:
    """One connection that sends a command and reads its answer."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "127.0.0.1", address.port or 6379), timeout=10)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._socket.close()

    def call(self, *words: str) -> Reply:
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        self._socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return self._read()

    def number(self, *words: str) -> int:
        """The answer to a command that counts something; 0 for one that answers nothing."""
        return int(str(self.call(*words) or 0))

    def facts(self, section: str) -> dict[str, str]:
        """One section of INFO."""
        lines = str(self.call("INFO", section)).splitlines()
        return {name: value for name, found, value in (line.partition(":") for line in lines) if found}

    def cpu_seconds(self) -> float:
        """What the server itself has used so far, without the children that rewrite its file."""
        facts = self.facts("cpu")
        return float(facts["used_cpu_sys"]) + float(facts["used_cpu_user"])

    def _read(self) -> Reply:
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"-":
            raise RuntimeError(f"the server answered: {rest}")
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == "-1" else self._stream.read(int(rest) + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return None if rest == "-1" else [self._read() for _ in range(int(rest))]
        return rest

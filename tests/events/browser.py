"""An event stream as the standard says a browser reads it."""

import re


class Browser:
    def __init__(self) -> None:
        self.shown: list[tuple[str, str]] = []
        self.last_event_id = ""
        self.retry: int | None = None

    def feed(self, text: str) -> None:
        """Read whole blocks."""
        name, data, seen_id = "", [""] * 0, self.last_event_id
        for line in re.split(r"\r\n|\r|\n", text):
            if not line:
                self.last_event_id = seen_id
                if data and data != [""]:
                    self.shown.append((name or "message", "\n".join(data)))
                name, data = "", []
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id" and "\0" not in value:
                seen_id = value
            elif field == "retry" and value.isascii() and value.isdigit():
                self.retry = int(value)

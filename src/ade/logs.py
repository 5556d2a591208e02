"""Structured logging: events with fields, through the standard library. Task payloads are never logged."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

_ROOT = "ade"


class Log:
    """A logger of events: `log.info("worker.started", worker=...)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, *, exc_info: bool = False, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields, exc_info=exc_info)

    def error(self, event: str, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Log an error with the traceback of the exception being handled."""
        self._write(logging.ERROR, event, fields, exc_info=True)

    def tells_all(self) -> bool:
        """Return whether debug logging is enabled."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def _write(self, level: int, event: str, fields: dict[str, Any], *, exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"event": event, "fields": fields}
            self._logger.log(level, _Message(event, fields), extra=extra, exc_info=exc_info)


class _Message:
    """The event and its fields as text, for handlers that do not know events. Formatted only if needed."""

    def __init__(self, event: str, fields: dict[str, Any]) -> None:
        self._event = event
        self._fields = fields

    def __str__(self) -> str:
        return " ".join((self._event, *_pairs(self._fields)))


def configure(format: Literal["auto", "json", "text"] = "auto", level: str = "info") -> None:
    """Send log lines to standard error, unless the program has already given the logger "ade" a handler."""
    logger = logging.getLogger(_ROOT)
    logger.setLevel(level.upper())
    if logger.handlers:
        return
    as_text = format == "text" or (format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    logger.addHandler(handler)
    logger.propagate = False


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": _moment(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": _event(record),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """For terminals. A value with spaces or line breaks is quoted, so that one event is one line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = _moment(record).astimezone()
        fields = " ".join(_pairs(_fields(record)))
        line = f"{moment:%H:%M:%S} {record.levelname.lower():<7} {_event(record):<24} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _moment(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _event(record: logging.LogRecord) -> str:
    event: str | None = getattr(record, "event", None)
    return record.getMessage() if event is None else event


def _pairs(fields: dict[str, Any]) -> list[str]:
    return [f"{name}={_readable(value)}" for name, value in fields.items()]


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _readable(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)

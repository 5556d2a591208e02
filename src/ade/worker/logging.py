"""What a worker says about itself: events with fields, one per line. Payloads of tasks are never among them."""

import logging
import sys
from typing import Any, Literal

import structlog

_configured = False


def configure(format: Literal["auto", "json", "text"] = "auto", level: str = "info") -> None:
    """Set structlog up once; a program that has configured it by itself keeps its own way."""
    global _configured  # structlog's configuration is global as well
    if _configured or structlog.is_configured():
        return
    _configured = True
    as_text = format == "text" or (format == "auto" and sys.stderr.isatty())
    renderer: Any = structlog.dev.ConsoleRenderer() if as_text else structlog.processors.JSONRenderer(default=str)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if as_text else [structlog.processors.dict_tracebacks]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )

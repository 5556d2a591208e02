"""The table, filled."""

from tests.fuzz.table import TARGETS
from tests.fuzz.targets import answers, headers, requests, rules, texts, webhooks

__all__ = ["TARGETS", "answers", "headers", "requests", "rules", "texts", "webhooks"]

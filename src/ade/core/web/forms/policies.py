"""What is said about the rulebook."""

from typing import Annotated, Any

from msgspec import Meta, field

from ade.core.web.forms.tasks import Form

Rules = dict[str, Any]  # as people write them, and as a version of the rulebook has them
_Word = Annotated[str, Meta(min_length=1, max_length=500)]


class ApplyRulebook(Form, kw_only=True):
    rules: Rules


class ListRulebookVersions(Form):
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20  # each with all it says


class CheckPolicies(Form, kw_only=True):
    """Something to do, as far as it is known. Without a score it is assessed from what the store knows."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    tool: Annotated[str, Meta(max_length=200)] | None = None  # that an agent would call
    args: dict[str, Any] = field(default_factory=dict)
    resources: Annotated[list[_Word], Meta(max_length=200)] = field(default_factory=list)
    tags: Annotated[list[_Word], Meta(max_length=200)] = field(default_factory=list)
    score: Annotated[float, Meta(ge=0, le=100)] | None = None
    rules: Rules | None = None  # to be tried instead of those in force, by who may operate

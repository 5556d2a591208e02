"""Annotated types for request fields, with their JSON schema, and the base classes of request bodies.

The patterns only describe the fields in the OpenAPI document. The code that uses a value validates it, so that the
error message is the same over HTTP, on the command line, and in Python. A test compares the two.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

from msgspec import Meta, Struct, ValidationError

MOST_TOGETHER = 1_000


def described(**schema: Any) -> Meta:
    """Add these keywords to the JSON schema of an annotated type, without validating them."""
    return Meta(extra_json_schema=schema)


_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_WORD = "[^\\u0000-\\u0020\\u007f-\\u00a0{}]"

TaskName = Annotated[str, described(pattern="^[A-Za-z_][A-Za-z0-9_.:-]{0,199}$")]
QueueName = Annotated[str, described(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Namespace = Annotated[str, described(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
TaskId = Annotated[str, described(pattern=f"^{_UUID}$")]
Capability = Annotated[str, described(pattern="^[a-z0-9][a-z0-9._-]{0,49}$")]
AgentType = Annotated[str, described(pattern="^([A-Za-z0-9][A-Za-z0-9._-]{0,49})?$")]
RateText = Annotated[str, described(pattern="^[1-9][0-9]{0,8}/([1-9][0-9]{0,5})?[smhd]$")]
EventType = Annotated[str, described(pattern="^(\\*|[a-z][a-z0-9_]*(\\.[a-z][a-z0-9_]*)*(\\.\\*)?)$", maxLength=100)]
EventPattern = Annotated[
    str, described(pattern="^(\\*|[a-z0-9_]+(\\.[a-z0-9_]+)*(\\.\\*)?)$", maxLength=100)
]  # of webhooks
InboxName = Annotated[str, described(pattern=f"^{_WORD}{{1,200}}$")]
AccountName = Annotated[str, described(pattern="^[^\\u0000-\\u0020\\u007f-\\u00a0{}:/,\"'`]{1,100}$")]
Account = Annotated[AccountName, Meta(min_length=1, max_length=100)]
RoleName = Annotated[str, described(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$")]
_AT_THE_ENDS, _WITHIN = "[^\\u0000-\\u0020\\u007f-\\u00a0{}]", "[^\\u0000-\\u001f\\u007f-\\u00a0{}]"
# Up to 512 bytes.
LockName = Annotated[str, described(pattern=f"^{_AT_THE_ENDS}({_WITHIN}{{0,510}}{_AT_THE_ENDS})?$")]
Label = Annotated[str, described(minLength=1, maxLength=100)]  # of printable characters, as keys are
Reference = Annotated[str, described(minLength=1, maxLength=200)]  # of printable characters too
Key = Annotated[str, described(minLength=1, maxLength=500)]
HttpsUrl = Annotated[str, described(pattern="^https?://[!-\\[\\]-~]+$", maxLength=2_000)]
NEW_PASSWORD = described(minLength=12)
Priority = (
    Annotated[int, described(minimum=0, maximum=9)]
    | Annotated[str, described(enum=["urgent", "high", "normal", "low"])]
)  # 0 is first
_DURATION = "([0-9]{1,12}(ms|s|m|h|d))+"
BackoffText = Annotated[str, described(pattern=f"^(exponential|steps|{_DURATION}(, ?{_DURATION})*)$")]
Attempts = Annotated[int, described(minimum=1, maximum=1_000)]
Span = Annotated[float, described(minimum=0.001)]  # seconds


PageSize = Annotated[int, Meta(ge=1, le=500)]

Line = Annotated[str, Meta(max_length=2_000)]


class Form(Struct, kw_only=True, forbid_unknown_fields=True):
    """A query or body that rejects unknown fields."""

    advice_if_invalid: ClassVar[str] = ""  # added to the message about a missing or invalid field
    # Names in JSON of fields that have another name in Python. Requests accept both; a name in `_ms` stands for a field
    # in seconds.
    json_names: ClassVar[Mapping[str, str]] = {}


class Nothing(Form):
    """A body without fields; it may be left out."""


Password = Annotated[str, Meta(max_length=1_000)]
Secret = Annotated[str, Meta(min_length=1, max_length=200)]


class SecretForm(Form):
    """A body with a password or another secret, which its repr keeps out of the logs."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class EarlierNames(NamedTuple):
    """Names of fields that requests can use in place of the current ones."""

    renamed: Mapping[str, str]  # earlier name -> name
    inner: "Mapping[str, EarlierNames]"  # of fields with forms inside, by name


def with_field_names(form: type[Form], value: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON fields by their names in Python; the value can have either. Raises ValidationError if it has both."""
    found = dict(value)
    for field, name in form.json_names.items():
        if name in found:
            if field in found:
                raise ValidationError(f"{field} and {name} are the same field; write only {name}")
            given = found.pop(name)
            found[field] = from_ms(given) if is_in_ms(field, name) and type(given) in (int, float) else given
    return found


def is_in_ms(field: str, name: str) -> bool:
    """Return whether a field that is in seconds has a name in milliseconds."""
    return name.endswith("_ms") and not field.endswith("_ms")


def type_in_ms(kind: Any) -> Any:
    """Return the type of seconds as one of milliseconds, with the same bounds."""
    bare, *metas = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    return Annotated[(bare, *(_meta_in_ms(each) for each in metas if isinstance(each, Meta)))] if metas else bare


def _meta_in_ms(meta: Meta) -> Meta:
    bounds = {name: getattr(meta, name) for name in ("ge", "gt", "le", "lt")}
    extra = {name: each * 1000 for name, each in (meta.extra_json_schema or {}).items()}
    return Meta(
        **{name: each * 1000 for name, each in bounds.items() if each is not None}, extra_json_schema=extra or None
    )


def to_ms(seconds: float) -> float:
    """Return milliseconds."""
    return round(seconds * 1000, 3)


def from_ms(milliseconds: float) -> float:
    """Return seconds."""
    return milliseconds / 1000

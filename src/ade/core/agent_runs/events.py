"""What a run tells while it goes on, the same for every program."""

from msgspec import Struct


class Said(Struct, frozen=True):
    """Text of the agent, or a line of output that belongs to no protocol."""

    text: str
    is_part: bool = False  # more of the same line may follow


class ToolCalled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    name: str
    arguments: str = ""  # JSON, or what the program gave instead; long ones are cut


class Identified(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known by now about who runs, for a resumed run."""

    session_id: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None


class Spent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the run has cost so far. None: its program does not tell, or not yet."""

    tokens: int | None = None  # all of them: input, cached or not, and output
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    turns: int | None = None


class Retrying(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The program met a difficulty and tries again by itself."""

    reason: str
    attempt: int | None = None
    max_attempts: int | None = None
    delay_ms: int | None = None


class Complained(Struct, frozen=True):
    """The program told of an error. Whether the run fails of it shows at its end."""

    message: str


RunEvent = Said | ToolCalled | Identified | Spent | Retrying | Complained

"""What workers behind HTTP say about themselves and the names they run."""

from typing import Annotated, Any

from msgspec import Meta, field

from ade.core.capabilities import MOST_CAPABILITIES
from ade.core.records import DEFAULT_PRIORITY, DEFAULT_QUEUE
from ade.core.retry import Backoff
from ade.core.web.forms.tasks import Form, PageSize
from ade.core.web.forms.words import Capability, QueueName, RateText, TaskName

LONGEST_S = 31_536_000.0
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Text = Annotated[str, Meta(max_length=200)]


class ListWorkers(Form):
    cursor: str | None = None
    limit: PageSize = 50


class NewDefinition(Form):
    """What holds for all tasks of a name. What is not said is left to the settings of whoever enqueues one."""

    name: TaskName
    queue: QueueName = DEFAULT_QUEUE
    schema: dict[str, Any] | None = None  # of the arguments, as JSON Schema; names and plain types are checked
    concurrency: Count | None = None  # running at once over all workers
    concurrency_per_key: Count | None = None
    rate: RateText | None = None  # starts, such as 100/m or 10/30s
    priority: Annotated[int, Meta(ge=0, le=9)] = DEFAULT_PRIORITY
    timeout: Seconds | None = None  # of one run; 0: no limit
    max_attempts: Annotated[int, Meta(ge=1, le=1_000)] | None = None
    backoff: Backoff | None = None
    result_ttl: Seconds | None = None  # 0: for ever
    needs: Annotated[list[Capability], Meta(max_length=MOST_CAPABILITIES)] = field(default_factory=list)


class RegisterWorker(Form):
    """A worker must be heard of within `ttl` seconds, again and again, or else it is silent."""

    definitions: Annotated[list[NewDefinition], Meta(max_length=500)] = field(default_factory=list)
    queues: Annotated[list[QueueName], Meta(max_length=100)] = field(default_factory=list)  # none: all
    capabilities: Annotated[list[Capability], Meta(max_length=MOST_CAPABILITIES)] = field(default_factory=list)
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 1
    agent: Annotated[str, Meta(max_length=100)] | None = None  # whose capacity its runs use up
    hostname: Text | None = None  # otherwise the address it calls from
    pid: Annotated[int, Meta(ge=0, le=2**31)] = 0
    version: Text = ""
    draining: bool = False  # it takes nothing new
    ttl: Annotated[float, Meta(ge=5, le=3_600)] = 60.0

"""Every key there is, in one table. The reference page is generated from it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Names:
    """What the keys of one partition begin with, and the names that can be set."""

    prefix: str
    tasks: str  # streams of ready tasks: <tasks>:<queue>:<priority>
    group: str
    results: str
    dlq: str

    @classmethod
    def of(
        cls,
        prefix: str,
        *,
        tasks: str = "queue:tasks",
        group: str = "ade-workers",
        results: str = "queue:results",
        dlq: str = "queue:dlq",
    ) -> "Names":
        return cls(prefix, prefix + tasks, group, prefix + results, prefix + dlq)

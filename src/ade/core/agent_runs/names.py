"""What tasks that run agents are called, and ADE's own step after them."""

PREFIX = "agent:"  # before the type of the agent
NOTIFY = "agents:notify"  # tells a conversation that a run it asked for has ended


def task_name(subagent_type: str) -> str:
    return f"{PREFIX}{subagent_type}"


def is_run(name: str) -> bool:
    return name.startswith(PREFIX)


def type_of(name: str) -> str:
    """The type of agent that a task of this name runs."""
    return name.removeprefix(PREFIX)

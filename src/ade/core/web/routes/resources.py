"""What tasks share: locks, agents, workers, queues, schedules and the inboxes of conversations."""

from ade.core.accounts.permissions import Permission
from ade.core.web.rates import Traffic
from ade.core.web.routing import Route, Tag, change, read

_ENQUEUE, _OPERATE, _WORK = Permission.ENQUEUE, Permission.OPERATE, Permission.WORK
_AGENT, _QUEUE, _SCHEDULE, _INBOX = (
    "/agents/{agent_id}",
    "/queues/{queue}",
    "/schedules/{schedule}",
    "/inboxes/{inbox_id}",
)


def _own(line: str, operation: str, summary: str, traffic: Traffic = Traffic.WORK) -> Route:
    """With the id of the grant in the body: it is a secret of its holder, and addresses are written down."""
    return change(f"POST {line}", operation, summary, _ENQUEUE, traffic=traffic, takes_key=False)


LOCKS: tuple[Route, ...] = (
    read("/locks", "list_locks", "Who holds and waits for what."),
    read("/locks/graph", "get_lock_graph", "Who waits for whom, and the rings among them."),
    _own("/locks/acquire", "acquire_locks", "Ask for locks, all or none; may wait for them.", Traffic.LOCK),
    _own("/locks/renew", "renew_locks", "Keep locks, or a place in line."),
    _own("/locks/release", "release_locks", "Let locks go, or leave the line."),
    _own("/locks/upgrade", "upgrade_lock", "Make a share exclusive.", Traffic.LOCK),
    _own("/locks/downgrade", "downgrade_lock", "Make it a share again."),
    read("/locks/position", "get_lock_position", "One's place in line.", _ENQUEUE, method="POST",
         traffic=Traffic.WORK),
    change("POST /locks/force-release", "force_release_lock", "Take a lock away from its holder.", _OPERATE),
)  # fmt: skip

AGENTS: tuple[Route, ...] = (
    read("/agents", "list_agents", "Agents, and how much of their capacity is in use."),
    read(_AGENT, "get_agent", "One agent."),
    change(f"PUT {_AGENT}/capacity", "set_agent_capacity", "Change how much it may do at once.", _OPERATE),
    change(f"PUT {_AGENT}", "register_agent", "Register an agent, with its type and capacity.", _ENQUEUE, _OPERATE,
           others=_OPERATE),
    change(f"POST {_AGENT}/heartbeat", "heartbeat_agent", "Say that it is there.", _ENQUEUE, _OPERATE, others=_OPERATE,
           traffic=Traffic.WORK, takes_key=False),
    change(f"POST {_AGENT}/drain", "drain_agent", "Begin nothing new on it.", _ENQUEUE, _OPERATE, others=_OPERATE),
    change(f"POST {_AGENT}/activate", "activate_agent", "Let it work again.", _ENQUEUE, _OPERATE, others=_OPERATE),
    change(f"POST {_AGENT}/offline", "mark_agent_offline", "Say that it is not there.", _ENQUEUE, _OPERATE,
           others=_OPERATE),
    change(f"DELETE {_AGENT}", "remove_agent", "Forget an agent.", _OPERATE),
    read("/subagents", "list_subagents", "Agents at work: for whom, how far, at what cost."),
    read("/subagents/{task_id}", "get_subagent", "One of them."),
)  # fmt: skip

WORKERS: tuple[Route, ...] = (
    read("/workers", "list_workers", "Workers and how they are doing."),
    read("/workers/{worker_id}", "get_worker", "One worker."),
    change("PUT /workers/{worker_id}", "register_worker", "Say what a worker is and can run.", _WORK,
           traffic=Traffic.WORK),
    change("DELETE /workers/{worker_id}", "deregister_worker", "Forget a worker that has handed all back.", _WORK,
           traffic=Traffic.WORK),
)  # fmt: skip

QUEUES: tuple[Route, ...] = (
    read("/queues", "list_queues", "Queues with their depths and ages."),
    read(_QUEUE, "get_queue", "One queue."),
    change(f"POST {_QUEUE}/pause", "pause_queue", "Claim nothing from it.", _OPERATE),
    change(f"POST {_QUEUE}/resume", "resume_queue", "Claim from it again.", _OPERATE),
    change(f"PUT {_QUEUE}/limits", "limit_queue", "Change how many tasks it takes.", _OPERATE),
    read("/schedules", "list_schedules", "Tasks that come again and again."),
    read(_SCHEDULE, "get_schedule", "One schedule.", tag=Tag.ANSWERED),
    change(f"PUT {_SCHEDULE}", "put_schedule", "Make or replace a schedule.", _OPERATE, tag=Tag.HEEDED),
    change(f"POST {_SCHEDULE}/pause", "pause_schedule", "Let it fire no more.", _OPERATE),
    change(f"POST {_SCHEDULE}/resume", "resume_schedule", "Let it fire again.", _OPERATE),
    change(f"POST {_SCHEDULE}/fire", "fire_schedule", "Enqueue its task now.", _OPERATE),
    change(f"DELETE {_SCHEDULE}", "remove_schedule", "Remove a schedule.", _OPERATE),
)

INBOXES: tuple[Route, ...] = (
    read("/inboxes", "list_inboxes", "Conversations, and what they have still to be told."),
    read(_INBOX, "get_inbox", "One conversation's inbox.", tag=Tag.ANSWERED),
    change(f"POST {_INBOX}/items", "put_inbox_items", "Tell a conversation something.", _ENQUEUE),
    change(f"DELETE {_INBOX}/items/{{item_id}}", "remove_inbox_item", "Take an item out.", _OPERATE),
    change(f"POST {_INBOX}/clear", "clear_inbox", "Empty an inbox.", _OPERATE, tag=Tag.HEEDED),
    change(f"POST {_INBOX}/reset", "reset_inbox", "Forget what its consumer remembers.", _OPERATE),
)

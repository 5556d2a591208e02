"""Use cases on tasks: enqueue, get, cancel, replay, schedules. Load, let core decide, commit."""

"""Use cases around a task that people must approve: submit, assess, vote, start, tend."""

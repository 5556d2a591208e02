"""Agents: the registry, agent programs run as tasks, and conversations."""

"""Agents: programs that ADE starts, watches and ends."""

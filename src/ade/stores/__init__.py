"""Stores: they know ports and core, nothing else."""

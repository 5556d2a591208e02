"""Locks as programs use them: asked for, waited for, kept alive, and known to be lost without asking anybody."""

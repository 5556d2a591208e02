"""Accounts: who may do what, how they prove who they are, and for how long that counts."""

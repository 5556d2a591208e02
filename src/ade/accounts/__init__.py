"""Accounts: users, roles, access tokens, login sessions, and how a caller is authenticated."""

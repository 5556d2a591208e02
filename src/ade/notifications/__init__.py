"""Notifications of people about approvals and changes of their accounts, through channels that they choose."""

"""The directory: who there is, what they may do, and how they show who they are."""

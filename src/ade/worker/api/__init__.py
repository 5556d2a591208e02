"""HTTP operations for workers without access to the store."""

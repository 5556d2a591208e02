"""The worker: claims tasks, runs them, and reports their outcomes."""

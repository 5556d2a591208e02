"""The Python API: an app, its tasks, and handles on what was enqueued."""

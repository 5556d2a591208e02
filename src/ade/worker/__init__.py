"""The worker: claims tasks, performs them, settles what happened and commits it; and the duties done on a timer."""

"""A worker that lives behind HTTP: it has the tasks of an app and the address of a server, and no store at all."""

"""One function for every route, that knows nothing of HTTP: what the API, the client and the command line share."""

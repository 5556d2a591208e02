"""An HTTP/1.1 client: connections and their pool."""

"""The store on Redis or Valkey: the same behaviour on many machines, for one server, Sentinel or a cluster."""

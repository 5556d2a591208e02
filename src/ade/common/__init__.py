"""Code that every feature can use."""

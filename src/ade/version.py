"""The version of ADE; a test keeps it equal to the one in pyproject.toml."""

VERSION = "0.1.0"

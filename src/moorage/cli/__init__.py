"""The `moor` command: parse, call, print."""

"""Commands of `moor`: one module each, which defines `command`."""

"""One module a command; each has its `command`."""

"""Container logs: the CRI's line format, reading and following them, and rotation."""

"""Container logs: CRI line format, reading, following and rotation."""

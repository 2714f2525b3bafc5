"""API server: the handler of its requests, its assembly, what it creates and maintains."""

"""Graceful node shutdown: logind announces it, and the pods end before the host does."""

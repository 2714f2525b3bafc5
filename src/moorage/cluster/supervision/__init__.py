"""Supervision of a cluster's parts: started, probed, restarted, stopped; their state."""

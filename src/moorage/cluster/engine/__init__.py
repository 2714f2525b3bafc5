"""Engine of one cluster: planned from the host's facts, and removed from the host again.

Import its modules directly: the API server needs the paths without loading a container engine.
"""

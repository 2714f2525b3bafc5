"""The engine of one cluster: planned from the host's facts, and removed from the host again.

Import the modules: the API server needs the paths, and must not load a container engine for them.
"""

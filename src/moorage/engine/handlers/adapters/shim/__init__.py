"""Containerd shims: the adapter that drives a runtime over the task service, and its parts."""

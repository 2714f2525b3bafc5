"""Volumes: made ready before a pod's containers start, kept current, and cleaned up."""

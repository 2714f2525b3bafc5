"""Moorage: the Kubernetes RuntimeClass system, end to end, in Python.

The packages read from top to bottom in the order a pod travels; imports point down only.
`docs/architecture.md` has the map.
"""

__version__ = "0.1.0"

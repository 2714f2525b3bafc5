"""StatefulSets: pods with ordinals, stable names and claims of their own."""

from moorage.controllers.statefulsets.controller import StatefulSetController

__all__ = ["StatefulSetController"]

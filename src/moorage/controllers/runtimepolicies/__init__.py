"""RuntimePolicies: the label by which floors fail closed on other API servers."""

from moorage.controllers.runtimepolicies.controller import FloorLabelController

__all__ = ["FloorLabelController"]

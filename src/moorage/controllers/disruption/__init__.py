"""Disruptions: what budgets permit, and announced disruptions that did not happen."""

from moorage.controllers.disruption.controller import DisruptionController, stale_disruptions

__all__ = ["DisruptionController", "stale_disruptions"]

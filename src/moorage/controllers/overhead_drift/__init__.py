"""Overhead drift: warns when pods of a class cost more or less than it declares."""

from moorage.controllers.overhead_drift.controller import OverheadDriftController
from moorage.controllers.overhead_drift.metrics import OverheadMetrics

__all__ = ["OverheadDriftController", "OverheadMetrics"]

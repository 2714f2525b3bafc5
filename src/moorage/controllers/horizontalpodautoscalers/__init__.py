"""Horizontal pod autoscalers: as many replicas as what is measured of their pods calls for."""

from moorage.controllers.horizontalpodautoscalers.controller import AutoscalerController

__all__ = ["AutoscalerController"]

"""Measured overhead: probe pods of a runtime handler, what they cost, and new class versions.

Works through the API server of any Kubernetes; on the node itself, cgroups and processes are read
too. The estimates are `moorage.runtimeclass.overhead_estimates`.
"""

from moorage.runtimes.overhead.measurement import Measurement
from moorage.runtimes.overhead.options import MeasurementError, MeasureOptions
from moorage.runtimes.overhead.report import Report

__all__ = ["MeasureOptions", "Measurement", "MeasurementError", "Report"]

"""Conformance: standard classes, the properties each promises, and how a pod proves them.

Pure: the catalogue, what a probe's outcome proves, and the result that a class carries.
"""

from moorage.runtimeclass.conformance.properties import (
    PROPERTIES,
    STANDARD_CLASSES,
    Property,
    StandardClass,
)
from moorage.runtimeclass.conformance.results import ClassResult, PropertyResult, Verdict

__all__ = [
    "PROPERTIES",
    "STANDARD_CLASSES",
    "ClassResult",
    "Property",
    "PropertyResult",
    "StandardClass",
    "Verdict",
]

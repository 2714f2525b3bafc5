"""Conformance tests: pods that prove the properties of a class, and reports of the result.

Works through the API server of any Kubernetes. What is tested is
`moorage.runtimeclass.conformance`.
"""

from moorage.runtimes.conformance.probe_pods import ConformanceError
from moorage.runtimes.conformance.runner import (
    ConformanceOptions,
    ConformanceTest,
    read_profiles,
    write_result,
)

__all__ = [
    "ConformanceError",
    "ConformanceOptions",
    "ConformanceTest",
    "read_profiles",
    "write_result",
]

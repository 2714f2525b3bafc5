"""Probing of runtime handlers: what works and what is supported, found by running containers.

The carriers are in modules of their own: a program needs one of them.
"""

from moorage.runtimes.probing.carrier import (
    CarrierError,
    Outcome,
    ProbeCarrier,
    ProbeContainer,
    ProbeMount,
    ProbeRefusedError,
    ProbeResult,
    RunningProbe,
    Seccomp,
)

__all__ = [
    "CarrierError",
    "Outcome",
    "ProbeCarrier",
    "ProbeContainer",
    "ProbeMount",
    "ProbeRefusedError",
    "ProbeResult",
    "RunningProbe",
    "Seccomp",
]

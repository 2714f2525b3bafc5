"""Probing of runtime handlers: what works and what is supported, found by running containers."""

from moorage.probing.carrier import (
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
from moorage.probing.cri_carrier import CriCarrier
from moorage.probing.pod_carrier import PodCarrier

__all__ = [
    "CarrierError",
    "CriCarrier",
    "Outcome",
    "PodCarrier",
    "ProbeCarrier",
    "ProbeContainer",
    "ProbeMount",
    "ProbeRefusedError",
    "ProbeResult",
    "RunningProbe",
    "Seccomp",
]

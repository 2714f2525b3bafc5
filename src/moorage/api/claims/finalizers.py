"""Finalizers that keep claims, volumes and their classes while they are in use.

Source: `volume/util` of Kubernetes 1.36.
"""

from __future__ import annotations

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
ATTRIBUTES_CLASS_PROTECTION = "kubernetes.io/vac-protection"

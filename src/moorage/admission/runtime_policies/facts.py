"""Facts seam: what the runtime policies ask of classes, nodes, profiles and policies.

The API server answers from its own copy (`sources.py`), the webhook from informers
(`moorage.admission_webhook`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from moorage.runtimeclass.class_index import ClassIndex
from moorage.runtimeclass.policies import EffectivePolicy


class NamespaceRules(msgspec.Struct, frozen=True):
    """The policy of a namespace, and its annotations."""

    policy: EffectivePolicy = EffectivePolicy()
    annotations: Mapping[str, str] = {}


class Facts(Protocol):
    """What admission knows."""

    @property
    def has_policies(self) -> bool:
        """Return whether there is any policy."""

    @property
    def has_profiles(self) -> bool:
        """Return whether there is any RuntimeProfile."""

    def index(self) -> ClassIndex:
        """Return the index of classes as of now."""

    def rules(self, namespace: str) -> NamespaceRules:
        """Return the rules for the pods of a namespace."""

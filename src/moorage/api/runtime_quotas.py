"""RuntimeClassQuotas: how many pods of a class a namespace may have, and what they may request.

Overhead is counted: a sandbox takes it from the node like any container.
"""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta

ALL_CLASSES = "*"
"""Class name of a quota for all pods of the namespace together, those without a class too."""


class RuntimeClassQuotaSpec(Object, frozen=True):
    """`hard` has the keys of a ResourceQuota: pods, requests.cpu, limits.memory and kin.

    `class_name` is a class, `legacy` for pods without one, or `*`.
    """

    class_name: str = ""
    hard: dict[str, int | str] = {}


class RuntimeClassQuotaStatus(Object, frozen=True):
    hard: dict[str, int | str] = {}
    used: dict[str, int | str] = {}


class RuntimeClassQuota(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: RuntimeClassQuotaSpec = RuntimeClassQuotaSpec()
    status: RuntimeClassQuotaStatus = RuntimeClassQuotaStatus()

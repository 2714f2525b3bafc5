"""ServiceAccounts."""

from __future__ import annotations

from moorage.apiserver.registry.declare.columns import AGE, NAME, printer
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy, Subresource

_ENFORCED = "kubernetes.io/enforce-mountable-secrets"


def warn_service_account(account: Obj, old: Obj | None) -> list[str]:
    annotations = account["metadata"].get("annotations", {})
    was = ((old or {}).get("metadata") or {}).get("annotations", {})
    if _ENFORCED in annotations and _ENFORCED not in was:
        return [
            f"metadata.annotations[{_ENFORCED}]: deprecated in v1.32+; prefer separate namespaces "
            "to isolate access to mounted secrets"
        ]
    return []


SERVICE_ACCOUNT = Kind(
    name="ServiceAccount",
    plural="serviceaccounts",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.ServiceAccount"),),
    short_names=("sa",),
    strategy=Strategy(
        warn=warn_service_account,
        returns_deleted=True,
    ),
    printer=printer(NAME, AGE),
    subresources={
        "token": Subresource(
            verbs=("create",),
            group="authentication.k8s.io",
            version="v1",
            kind="TokenRequest",
            type="io.k8s.api.authentication.v1.TokenRequest",
        )
    },
)

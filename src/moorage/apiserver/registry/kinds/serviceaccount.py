"""ServiceAccounts."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Kind, Obj, Printer, Served, Strategy, Subresource

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


def _service_account_cells(account: Obj, now: float) -> list[Any]:
    return [name_of(account), age_of(account, now)]


_PRINTER = Printer(columns=(NAME, AGE), cells=_service_account_cells)

SERVICE_ACCOUNT = Kind(
    name="ServiceAccount",
    plural="serviceaccounts",
    served=(Served(group="", version="v1", type="io.k8s.api.core.v1.ServiceAccount"),),
    short_names=("sa",),
    strategy=Strategy(
        warn=warn_service_account,
        returns_deleted=True,
    ),
    printer=_PRINTER,
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

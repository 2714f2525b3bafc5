"""ServiceAccount plugin: sets the service account of a pod and mounts its token.

Source: apiserver plugin ServiceAccount. The token is a projected volume that the node agent fills
and rotates; legacy token secrets are never mounted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from moorage.api.configuration import ServiceAccount
from moorage.api.names import random_suffix
from moorage.api.pod_references import projects_account_token, secret_names
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
from moorage.apiserver.admission.mountable_secrets import (
    forbidden_ephemeral_secret,
    forbidden_secret,
    limits_secrets,
)
from moorage.apiserver.admission.refusal import refused
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.request import Attributes

DEFAULT_ACCOUNT = "default"
TOKEN_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ROOT_CA_CONFIG_MAP = "kube-root-ca.crt"
_VOLUME_PREFIX = "kube-api-access-"
_TOKEN_SECONDS = 3607
_MODE = 0o644
_EPHEMERAL = "ephemeralcontainers"


class ServiceAccountAdmission:
    """Sets account, token volume and image pull secrets of new pods; refuses missing accounts.

    Refuses Secrets that an account which limits them does not list, in ephemeral containers too.
    `find(name, namespace)` returns a service account, or None.
    """

    name = "ServiceAccount"
    scope = Scope.of(["pods"], [CREATE, UPDATE], ["", _EPHEMERAL])

    def __init__(self, find: Callable[[str, str], ServiceAccount | None]) -> None:
        self._find = find
        self.mutate = self._admit
        self.validate = self._check

    def _admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        if attributes.operation != CREATE or _is_mirror(attributes.obj):
            return
        spec = attributes.obj["spec"]
        name = spec.setdefault("serviceAccountName", DEFAULT_ACCOUNT)
        spec["serviceAccount"] = name
        account = self._account(attributes, name)
        if _wants_token(spec, account):
            _mount_token(spec)
        if not spec.get("imagePullSecrets") and account.image_pull_secrets:
            spec["imagePullSecrets"] = [
                {"name": reference.name} for reference in account.image_pull_secrets
            ]

    def _check(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        is_creation = attributes.operation == CREATE
        if not is_creation and attributes.subresource != _EPHEMERAL:
            return
        if is_creation and _is_mirror(attributes.obj):
            _check_mirror(attributes)
            return
        name = attributes.obj["spec"].get("serviceAccountName", "")
        if not name:
            where = f"{attributes.namespace}/{attributes.name}"
            raise refused(attributes, f"no service account specified for pod {where}")
        account = self._account(attributes, name)
        if limits_secrets(account):
            pod = msgspec.convert(attributes.obj, Pod)
            check = forbidden_secret if is_creation else forbidden_ephemeral_secret
            if (why := check(pod, account)) is not None:
                raise refused(attributes, why)

    def _account(self, attributes: Attributes, name: str) -> ServiceAccount:
        account = self._find(name, attributes.namespace)
        if account is None:
            raise refused(
                attributes,
                f"error looking up service account {attributes.namespace}/{name}: "
                f'serviceaccount "{name}" not found',
            )
        return account


def _is_mirror(pod: Obj) -> bool:
    return MIRROR_ANNOTATION in pod["metadata"].get("annotations", ())


def _check_mirror(attributes: Attributes) -> None:
    """Refuse a mirror pod that uses API objects: its node runs it without the API."""
    pod = msgspec.convert(attributes.obj, Pod)
    if pod.spec.service_account_name:
        raise refused(attributes, "a mirror pod may not reference service accounts")
    if secret_names(pod):
        raise refused(attributes, "a mirror pod may not reference secrets")
    if projects_account_token(pod):
        raise refused(attributes, "a mirror pod may not use ServiceAccountToken volume projections")


def _wants_token(spec: Obj, account: ServiceAccount) -> bool:
    own: bool | None = spec.get("automountServiceAccountToken")
    if own is not None:
        return own
    return account.automount_service_account_token is not False


def _mount_token(spec: Obj) -> None:
    """Add the token volume and mount it in every container without a mount at its path."""
    present = _token_volume_name(spec)
    volume_name = present or f"{_VOLUME_PREFIX}{random_suffix()}"
    is_mounted = False
    for container in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
        mounts = container.get("volumeMounts", [])
        if any(mount.get("mountPath") == TOKEN_MOUNT for mount in mounts):
            continue
        mount = {"name": volume_name, "readOnly": True, "mountPath": TOKEN_MOUNT}
        container["volumeMounts"] = [*mounts, mount]
        is_mounted = True
    if is_mounted and not present:
        spec["volumes"] = [*spec.get("volumes", ()), _token_volume(volume_name)]


def _token_volume_name(spec: Obj) -> str:
    """Return the name of the token volume that a pod has, as after a webhook's change."""
    names = (volume.get("name", "") for volume in spec.get("volumes", ()))
    return next((name for name in names if name.startswith(_VOLUME_PREFIX)), "")


def _token_volume(name: str) -> Obj:
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {
            "configMap": {
                "name": ROOT_CA_CONFIG_MAP,
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": _MODE}}

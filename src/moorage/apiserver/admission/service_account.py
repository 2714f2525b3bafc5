"""ServiceAccount plugin: sets the service account of a pod and mounts its token.

Source: apiserver plugin ServiceAccount. The token is a projected volume that the node agent fills
and rotates; legacy token secrets are never mounted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from moorage.api.configuration import ServiceAccount
from moorage.api.containers import Container, EphemeralContainer
from moorage.api.names import random_suffix
from moorage.api.pod_references import projects_account_token, secret_names
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.apiserver.admission.admission_request import refused
from moorage.apiserver.admission.chain import CREATE, UPDATE, Scope
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


# Mountable Secrets: those that a pod may name, where its service account limits them.
#
# An account with the annotation `kubernetes.io/enforce-mountable-secrets` gives its pods the
# Secrets
# that it lists in `secrets`, and pulls with those in `imagePullSecrets`. Source: apiserver plugin
# ServiceAccount (`limitSecretReferences`), which does not look into projected volumes.

_ANNOTATION: Final = "kubernetes.io/enforce-mountable-secrets"
# Source: Go's `strconv.ParseBool`.
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})


def limits_secrets(account: ServiceAccount) -> bool:
    return account.metadata.annotations.get(_ANNOTATION, "") in _TRUE


def forbidden_secret(pod: Pod, account: ServiceAccount) -> str | None:
    """Return why a new pod may not name a Secret, None if it may name all that it names."""
    mountable = {reference.name for reference in account.secrets}
    name = account.metadata.name
    for what, secret in (*_of_volumes(pod), *_of_containers(pod)):
        if secret not in mountable:
            return _refusal(what, secret, name)
    pulling = {reference.name for reference in account.image_pull_secrets}
    for index, reference in enumerate(pod.spec.image_pull_secrets):
        if reference.name not in pulling:
            return (
                f'imagePullSecrets[{index}].name="{reference.name}" is not allowed because service '
                f"account {name} does not reference that imagePullSecret"
            )
    return None


def forbidden_ephemeral_secret(pod: Pod, account: ServiceAccount) -> str | None:
    """Return why the ephemeral containers of a pod may not name a Secret, None if they may."""
    mountable = {reference.name for reference in account.secrets}
    for container in pod.spec.ephemeral_containers:
        for what, secret in _of_container("ephemeral container", container):
            if secret not in mountable:
                return _refusal(what, secret, account.metadata.name)
    return None


def _refusal(what: str, secret: str, account: str) -> str:
    return (
        f'{what} secret.secretName="{secret}" is not allowed because service account {account} '
        "does not reference that secret"
    )


def _of_volumes(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        if volume.secret is not None:
            yield "volume with", volume.secret.secret_name
        for source in volume.projected.sources if volume.projected is not None else ():
            if source.secret is not None:
                yield "projected volume with", source.secret.name


def _of_containers(pod: Pod) -> Iterator[tuple[str, str]]:
    for container in pod.spec.init_containers:
        yield from _of_container("init container", container)
    for container in pod.spec.containers:
        yield from _of_container("container", container)


def _of_container(
    what: str, container: Container | EphemeralContainer
) -> Iterator[tuple[str, str]]:
    for variable in container.env:
        source = variable.value_from
        if source is not None and source.secret_key_ref is not None:
            yield (
                f"{what} {container.name} with envVar {variable.name} referencing",
                source.secret_key_ref.name,
            )
    for origin in container.env_from:
        if origin.secret_ref is not None:
            yield f"{what} {container.name} with envFrom referencing", origin.secret_ref.name

"""Mountable Secrets: those that a pod may name, where its service account limits them.

An account with the annotation `kubernetes.io/enforce-mountable-secrets` gives its pods the Secrets
that it lists in `secrets`, and pulls with those in `imagePullSecrets`. Source: apiserver plugin
ServiceAccount (`limitSecretReferences`), which does not look into projected volumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moorage.api.configuration import ServiceAccount
from moorage.api.containers import Container, EphemeralContainer
from moorage.api.pods import Pod

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

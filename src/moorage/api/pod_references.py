"""Pod references: the objects a pod names, which its node must be able to read.

Source: core/v1 `PodSpec`; volume types that Moorage does not mount count as no reference.
"""

from __future__ import annotations

from moorage.api.containers import Container, EphemeralContainer
from moorage.api.pods import Pod


def secret_names(pod: Pod) -> set[str]:
    """Return the names of Secrets in volumes, environments and image pull secrets."""
    names = {reference.name for reference in pod.spec.image_pull_secrets}
    for volume in pod.spec.volumes:
        if volume.secret is not None:
            names.add(volume.secret.secret_name)
        if volume.projected is not None:
            names |= {s.secret.name for s in volume.projected.sources if s.secret is not None}
    for container in _containers(pod):
        names |= {e.secret_ref.name for e in container.env_from if e.secret_ref is not None}
        for variable in container.env:
            if variable.value_from is not None and variable.value_from.secret_key_ref is not None:
                names.add(variable.value_from.secret_key_ref.name)
    return names


def config_map_names(pod: Pod) -> set[str]:
    """Return the names of ConfigMaps in volumes and environments."""
    names: set[str] = set()
    for volume in pod.spec.volumes:
        if volume.config_map is not None:
            names.add(volume.config_map.name)
        if volume.projected is not None:
            sources = volume.projected.sources
            names |= {s.config_map.name for s in sources if s.config_map is not None}
    for container in _containers(pod):
        names |= {e.config_map_ref.name for e in container.env_from if e.config_map_ref is not None}
        for variable in container.env:
            source = variable.value_from
            if source is not None and source.config_map_key_ref is not None:
                names.add(source.config_map_key_ref.name)
    return names


def projects_account_token(pod: Pod) -> bool:
    """Return whether a volume of the pod projects a service account token."""
    return bool(projected_audiences(pod))


def projected_audiences(pod: Pod) -> set[str]:
    """Return the audiences of projected account tokens; empty text for the API's own."""
    return {
        source.service_account_token.audience
        for volume in pod.spec.volumes
        if volume.projected is not None
        for source in volume.projected.sources
        if source.service_account_token is not None
    }


def resource_claim_names(pod: Pod) -> set[str]:
    """Return the names of ResourceClaims: those that the pod names, and those made for it."""
    named = [claim.resource_claim_name for claim in pod.spec.resource_claims]
    made = [claim.resource_claim_name for claim in pod.status.resource_claim_statuses]
    return {name for name in (*named, *made) if name}


def uses_claim(pod: Pod) -> bool:
    """Return whether a volume of the pod uses a PersistentVolumeClaim, its own or another."""
    return any(
        volume.persistent_volume_claim is not None or volume.ephemeral is not None
        for volume in pod.spec.volumes
    )


def _containers(pod: Pod) -> list[Container | EphemeralContainer]:
    spec = pod.spec
    return [*spec.init_containers, *spec.containers, *spec.ephemeral_containers]

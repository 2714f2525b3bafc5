"""Foreign objects of a namespace: what others put there, and what would go with the namespace.

All namespaced kinds that the server serves are listed, by metadata alone.
"""

from __future__ import annotations

from collections.abc import Collection

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.meta import ObjectMeta, OwnerReference
from moorage.api.runtime_group import PROBE_LABEL
from moorage.attach.belongings import has_name_of_ours
from moorage.attach.manifests.identity import MOORAGE, NAME_LABEL, PART_OF_LABEL
from moorage.wire.client.discovery import discover
from moorage.wire.client.rest import Client

_IN_EVERY_NAMESPACE = frozenset(
    (
        ("ConfigMap", "kube-root-ca.crt"),
        ("ConfigMap", "openshift-service-ca.crt"),
        ("ConfigMap", "istio-ca-root-cert"),
        ("ServiceAccount", "default"),
        ("ServiceAccount", "builder"),
        ("ServiceAccount", "deployer"),
        ("RoleBinding", "system:deployers"),
        ("RoleBinding", "system:image-builders"),
        ("RoleBinding", "system:image-pullers"),
    )
)
"""What controllers put into each namespace, by itself."""
_RECORDS = frozenset((("", "Event"), ("events.k8s.io", "Event")))
"""Groups and kinds of objects that say what happened, and end by themselves."""
_MOST = 1000


async def foreign_objects(client: Client, namespace: str) -> list[str]:
    """Return the foreign objects of a namespace, at most 1,000 of a kind, as `KIND NAME`.

    A kind that cannot be listed counts as one, with the reason. Raises StatusError and
    UnreachableError where the server does not say which kinds it has.
    """
    discovered = await discover(client)
    found = [f"{version}, which cannot be read: {why}" for version, why in discovered.failures]
    kinds = frozenset(
        (one.resource.group, one.resource.kind)
        for one in discovered.served
        if one.resource.is_namespaced
    )
    for resource in discovered.with_verbs("list", "delete"):
        # There may be very many records.
        if not resource.is_namespaced or (resource.group, resource.kind) in _RECORDS:
            continue
        names: list[str] = []
        try:
            async for page in client.pages(resource, namespace):
                names += [
                    one.metadata.name
                    for one in page.items
                    if is_foreign_object(resource.kind, one.metadata, kinds)
                ]
                if len(names) > _MOST:
                    break
        except NotFoundError:
            # Its definition has just gone.
            continue
        except StatusError as error:
            found.append(f"{resource.kind}, which cannot be listed: {error}")
            continue
        found += [f"{resource.kind} {name}" for name in names[:_MOST]]
    return sorted(found)


def is_foreign_object(kind: str, meta: ObjectMeta, namespaced: Collection[tuple[str, str]]) -> bool:
    """Return whether an object in a namespace of ours is of others.

    Those that another object of the namespace owns come and go with it; its kind is one of
    `namespaced`, groups and kinds. An owner that is in no namespace outlives this one.
    """
    labels = meta.labels
    is_labelled = labels.get(PART_OF_LABEL) == labels.get(NAME_LABEL) == MOORAGE
    return not (
        is_labelled
        or PROBE_LABEL in labels
        or any(_kind_of(owner) in namespaced for owner in meta.owner_references)
        or (kind, meta.name) in _IN_EVERY_NAMESPACE
        or has_name_of_ours(kind, meta.name)
    )


def _kind_of(owner: OwnerReference) -> tuple[str, str]:
    group, slash, _ = owner.api_version.partition("/")
    return (group if slash else "", owner.kind)

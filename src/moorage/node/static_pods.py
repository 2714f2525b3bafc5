"""Static pods: manifests of a directory on this node, and their mirrors in the API."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.names import dns_label_errors, dns_subdomain_errors
from moorage.api.nodes import Node
from moorage.api.pod_references import (
    config_map_names,
    projects_account_token,
    secret_names,
    uses_claim,
)
from moorage.api.pods import MIRROR_ANNOTATION, Pod
from moorage.api.yaml_values import parse_document
from moorage.linux.descriptors import NotRegularError, read_regular_file
from moorage.linux.inotify import Inotify
from moorage.node.notifier import Notifier
from moorage.node.pod_facts.sources import (
    CONFIG_HASH,
    CONFIG_SOURCE,
    FILE_SOURCE,
    format_pod,
    is_mirror,
)
from moorage.node.pods.pod_manager import PodManager
from moorage.node.status.writer import StatusWriter
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import PODS
from moorage.wire.client.rest import Client, UnreachableError

if TYPE_CHECKING:
    from moorage.apiserver.registry.codec import Codec


# Manifests of static pods: the files of a directory, as pods of this node.
#
# A pod's UID is a hash of its manifest, node and file: a changed file is another pod. A file that
# is no pod is left out and reported; the others are not affected. Source: kubelet
# `config/file.go`, `config/common.go`.

# The rules of kinds are imported in functions: they are large, and few nodes have static pods.

_LARGEST_BYTES = 10 * 1024 * 1024
_DEFAULT_NAMESPACE = "default"
# A UID is the name of directories: of the pod's volumes, logs and cgroup.
_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_TOLERATION = {"operator": "Exists", "effect": "NoExecute"}


@dataclass(frozen=True, slots=True)
class Manifests:
    """The pods of a directory by UID, and what is wrong with files that are none."""

    pods: dict[str, Pod]
    problems: tuple[str, ...] = ()


def read_manifests(directory: Path, node_name: str) -> Manifests:
    """Read a directory's files, but not those whose names begin with a dot. Blocks.

    A directory that does not exist has none. Raises OSError.
    """
    pods: dict[str, Pod] = {}
    names: set[tuple[str, str]] = set()
    files_by_uid: dict[str, Path] = {}
    problems: list[str] = []
    try:
        files = sorted(directory.iterdir())
    except FileNotFoundError:
        return Manifests({})
    for file in files:
        if file.name.startswith(".") or file.is_dir():
            continue
        try:
            pod = parse_manifest(_content(file), file, node_name)
            name = (pod.metadata.namespace, pod.metadata.name)
            if name in names:
                raise ValueError(f"another file has a pod named {name[0]}/{name[1]}")
            if (other := files_by_uid.setdefault(pod.metadata.uid, file)) != file:
                raise ValueError(f"its metadata.uid {pod.metadata.uid} is also that of {other}")
        except (OSError, ValueError) as error:
            problems.append(f"static pod {file}: {error}")
            continue
        names.add(name)
        pods[pod.metadata.uid] = pod
    return Manifests(pods, tuple(problems))


def parse_manifest(content: bytes, file: Path, node_name: str) -> Pod:
    """Return the pod of a manifest, YAML or JSON. Raises ValueError."""
    document = parse_document(content).value
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (
        "v1",
        "Pod",
    ):
        raise ValueError("it is no Pod of apiVersion v1")
    obj = _typed(document)
    meta = obj["metadata"]
    if not meta.get("name"):
        raise ValueError("invalid pod: name is needed for the pod")
    what = _referenced(msgspec.convert(obj, Pod))
    if what:
        raise ValueError(f"static pods may not reference {what}")
    uid = meta.get("uid") or _hash(document, file, node_name)
    if _UID.fullmatch(uid) is None:
        raise ValueError(
            "invalid pod: metadata.uid: letters, digits, '-', '_' and '.' are allowed, at most 128 "
            "of them, the first and the last a letter or digit; or leave it out"
        )
    meta["name"] = f"{meta['name']}-{node_name.lower()}"
    meta["namespace"] = meta.get("namespace") or _DEFAULT_NAMESPACE
    meta["uid"] = uid
    meta["annotations"] = {
        **meta.get("annotations", {}),
        CONFIG_HASH: uid,
        CONFIG_SOURCE: FILE_SOURCE,
    }
    obj["status"] = {"phase": "Pending"}
    spec = obj["spec"]
    spec["nodeName"] = node_name
    if _TOLERATION not in spec.get("tolerations", ()):
        spec["tolerations"] = [*spec.get("tolerations", ()), _TOLERATION]
    errors = [
        *dns_subdomain_errors(meta["name"]),
        *dns_label_errors(meta["namespace"]),
        *_complete(obj),
    ]
    if errors:
        raise ValueError(f"invalid pod: {'; '.join(errors)}")
    return msgspec.convert(obj, Pod)


def _typed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as the API server decodes one: no nulls, no fields that pods lack.

    What follows relies on the types. Raises DecodeError.
    """
    from moorage.apiserver.registry.kinds.pod import POD

    return _codec().fit_type(POD.served[0].type, document).obj


@cache
def _codec() -> Codec:
    from moorage.apiserver.registry.codec import Codec
    from moorage.apiserver.registry.schema import load_schema

    return Codec(load_schema())


def _complete(document: dict[str, Any]) -> list[str]:
    """Default the pod as the API server does; return the errors of its validation."""
    from moorage.apiserver.registry.kinds.pod import default_pod
    from moorage.apiserver.registry.kinds.pod.validation import validate_pod

    default_pod(document)
    return [str(error) for error in validate_pod(document)]


def _referenced(pod: Pod) -> str:
    """Return the kind of API object that the pod refers to; "" if it refers to none."""
    references: Iterable[tuple[str, bool]] = (
        ("serviceaccounts", bool(pod.spec.service_account_name)),
        ("secrets", bool(secret_names(pod))),
        ("configmaps", bool(config_map_names(pod))),
        ("serviceaccounttokens", projects_account_token(pod)),
        ("persistentvolumeclaims", uses_claim(pod)),
        ("resourceclaims", bool(pod.spec.resource_claims)),
    )
    return next((what for what, is_referenced in references if is_referenced), "")


def _hash(document: dict[str, Any], file: Path, node_name: str) -> str:
    text = msgspec.json.encode(document, order="sorted")
    seal = hashlib.sha256(text)
    seal.update(f"host:{node_name}file:{file}".encode())
    return seal.hexdigest()[:32]


def _content(file: Path) -> bytes:
    try:
        content = read_regular_file(file, _LARGEST_BYTES + 1)
    except NotRegularError as error:
        raise ValueError(error.problem) from error
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0)) from error
    if len(content) > _LARGEST_BYTES:
        raise ValueError("it is larger than 10 MiB")
    return content


# Static pods' keeper: follows the directory, hands its pods to the pod manager, keeps mirrors.
#
# inotify ─▶ read all files ─▶ PodManager.set_static ─▶ workers
# pod informer (mirrors) ─▶ plan ─▶ create, delete; statuses go to the mirrors

log = Log(__name__)

_AGAIN_S = 20.0
"""As the kubelet's `fileCheckFrequency`: a change that was missed, or a call that failed."""


class StaticPodKeeper:
    """Keeps the static pods of one directory. `run()` blocks until cancelled."""

    def __init__(
        self,
        *,
        directory: Path,
        node_name: str,
        client: Client,
        pods: Informer[Pod],
        pod_manager: PodManager,
        writer: StatusWriter,
        node: Callable[[], Node | None],
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._node_name = node_name
        self._client = client
        self._pods = pods
        self._pod_manager = pod_manager
        self._writer = writer
        self._node = node
        self._wake = Notifier(clock)
        self._problems: tuple[str, ...] = ()

    async def load(self) -> None:
        """Read the directory, and hand its pods to the pod manager. Raises OSError."""
        found = await asyncio.to_thread(read_manifests, self._directory, self._node_name)
        if found.problems != self._problems:
            self._problems = found.problems
            for problem in found.problems:
                log.warning("static pod left out", problem=problem)
        self._pod_manager.set_static(found.pods)

    async def run(self) -> None:
        self._pods.add_handler(self._on_pod)
        self._pod_manager.add_listener(self._wake.call)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            while True:
                try:
                    await self.load()
                    await self.reconcile()
                except (OSError, StatusError, UnreachableError) as error:
                    log.warning("static pods not reconciled", error=error)
                await self._wake.wait(_AGAIN_S)

    async def reconcile(self) -> None:
        """Make the mirrors agree with the static pods. Raises StatusError, UnreachableError."""
        mirrors = [pod for pod in self._pods if is_mirror(pod)]
        plan = plan_mirrors(self._pod_manager.static_pods, mirrors)
        for pod, mirror in plan.pairs:
            self._writer.mirror_seen(pod.metadata.uid, mirror)
        for mirror in plan.delete:
            await self._delete(mirror)
        for pod in plan.create:
            await self._create(pod)

    async def _create(self, pod: Pod) -> None:
        node = self._node()
        if node is None:
            return
        try:
            mirror = await self._client.create(PODS, mirror_of(pod, node), pod.metadata.namespace)
        except AlreadyExistsError:
            log.warning("another pod has the name of a static pod", pod=format_pod(pod))
            return
        self._writer.mirror_seen(pod.metadata.uid, mirror)

    async def _delete(self, mirror: Pod) -> None:
        meta = mirror.metadata
        try:
            await self._client.delete(
                PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_seconds=0
            )
        except (NotFoundError, ConflictError):
            log.debug("mirror already deleted", pod=format_pod(mirror))

    def _on_pod(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        if pod is not None and is_mirror(pod):
            self._wake.call()

    async def _follow(self) -> None:
        """Wake the keeper at changes of the directory, which may be made later."""
        with Inotify() as changes:
            changes.watch(self._directory.parent)
            while True:
                changes.watch(self._directory)
                await changes.changes()
                self._wake.call()


# Mirror pods: what the API shows of static pods. The plan is pure.
#
# A mirror has the annotation `kubernetes.io/config.mirror` with the hash of its manifest, and the
# node as its owner. One that is deleted is made again; one whose static pod is gone or has changed
# is deleted. Source: kubelet `pod/mirror_client.go`, KEP-1314.


@dataclass(frozen=True, slots=True)
class MirrorPlan:
    """Mirrors to delete, static pods whose mirror is to be created, and pairs that agree."""

    delete: tuple[Pod, ...] = ()
    create: tuple[Pod, ...] = ()
    pairs: tuple[tuple[Pod, Pod], ...] = ()


def plan_mirrors(static: Iterable[Pod], mirrors: Iterable[Pod]) -> MirrorPlan:
    """Return the changes that make the mirrors agree with the static pods of this node."""
    by_name = {_name(mirror): mirror for mirror in mirrors}
    delete, create, pairs = [], [], []
    for pod in static:
        mirror = by_name.pop(_name(pod), None)
        if mirror is None:
            create.append(pod)
        elif is_mirror_of(mirror, pod) and mirror.metadata.deletion_timestamp is None:
            pairs.append((pod, mirror))
        else:
            # It is created when the API has deleted this one.
            delete.append(mirror)
    return MirrorPlan((*delete, *by_name.values()), tuple(create), tuple(pairs))


def is_mirror_of(mirror: Pod, pod: Pod) -> bool:
    """Return whether a mirror shows this version of a static pod."""
    return mirror.metadata.annotations.get(MIRROR_ANNOTATION) == pod.metadata.annotations.get(
        CONFIG_HASH
    )


def mirror_of(pod: Pod, node: Node) -> dict[str, Any]:
    """Return the mirror of a static pod, to create."""
    meta = pod.metadata
    return {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": dict(meta.labels),
            "annotations": {
                **meta.annotations,
                MIRROR_ANNOTATION: meta.annotations[CONFIG_HASH],
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": node.metadata.name,
                    "uid": node.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": msgspec.to_builtins(pod.spec),
    }


def _name(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name

"""Manifests of static pods: the files of a directory, as pods of this node.

A pod's UID is a hash of its manifest, node and file: a changed file is another pod. A file that is
no pod is left out and reported; the others are not affected. Source: kubelet `config/file.go`,
`config/common.go`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from moorage.api.names import dns_label_errors, dns_subdomain_errors
from moorage.api.pod_references import (
    config_map_names,
    projects_account_token,
    secret_names,
    uses_claim,
)
from moorage.api.pods import Pod
from moorage.api.yaml_values import parse_document
from moorage.linux.regular_file import NotRegularError, read_regular_file
from moorage.node.pod_facts.sources import CONFIG_HASH, CONFIG_SOURCE, FILE_SOURCE

# The rules of kinds are imported in functions: they are large, and few nodes have static pods.
if TYPE_CHECKING:
    from moorage.apiserver.registry.codec import Codec

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
    """Default the pod as the API server does; return what it would refuse."""
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

"""Kubeconfig files: the cluster's own, and on request its entries in the user's.

Source: clientcmd/v1 `Config`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from moorage.api.yaml_values import YamlError, parse_document
from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.private_files import write_private
from moorage.wire.client.config import ConfigError

_SECTIONS = ("clusters", "users", "contexts")


@dataclass(frozen=True, slots=True)
class Access:
    """A cluster's URL and a user's certificate. `name` is the cluster's and the context's."""

    name: str
    server: str
    authority: Path
    identity: Pair
    user: str = "admin"


def document(access: Access) -> dict[str, Any]:
    """Return a kubeconfig with one context, certificates embedded."""
    user = f"{access.name}-{access.user}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": access.name,
                "cluster": {
                    "server": access.server,
                    "certificate-authority-data": _embedded(access.authority),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _embedded(access.identity.certificate),
                    "client-key-data": _embedded(access.identity.key),
                },
            }
        ],
        "contexts": [{"name": access.name, "context": {"cluster": access.name, "user": user}}],
        "current-context": access.name,
    }


def write(path: Path, access: Access) -> None:
    """Write the cluster's own kubeconfig, readable by its owner only. Raises OSError."""
    write_private(path, yaml.safe_dump(document(access), sort_keys=False).encode())


def merge(path: Path, access: Access) -> None:
    """Add or replace the cluster's entries in the user's file, and make its context current.

    All else in the file stays. Raises ConfigError if the file exists but is not a kubeconfig.
    """
    own = document(access)
    merged = _read(path) or {"apiVersion": "v1", "kind": "Config"}
    for section in _SECTIONS:
        names = {entry["name"] for entry in own[section]}
        others = [entry for entry in merged.get(section) or [] if entry.get("name") not in names]
        merged[section] = [*others, *own[section]]
    merged["current-context"] = own["current-context"]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Resolved, so that a symbolic link stays one.
    write_private(path.resolve(), yaml.safe_dump(merged, sort_keys=False).encode())


def unmerge(path: Path, name: str) -> None:
    """Remove the cluster's entries from the user's file. Raises ConfigError, as `merge` does."""
    present = _read(path)
    if present is None:
        return
    own = {name, f"{name}-admin"}
    for section in _SECTIONS:
        entries = present.get(section) or []
        present[section] = [entry for entry in entries if entry.get("name") not in own]
    if present.get("current-context") == name:
        present["current-context"] = ""
    write_private(path.resolve(), yaml.safe_dump(present, sort_keys=False).encode())


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        present = parse_document(path.read_bytes()).value
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except YamlError as error:
        raise ConfigError(f"{path}: {error}") from error
    if present is None:
        return None
    if not _is_kubeconfig(present):
        raise ConfigError(f"{path}: not a kubeconfig; it is left as it is")
    whole: dict[str, Any] = present
    return whole


def _is_kubeconfig(present: Any) -> bool:
    if not isinstance(present, dict) or present.get("kind", "Config") != "Config":
        return False
    sections = [present.get(section) or [] for section in _SECTIONS]
    return all(
        isinstance(section, list) and all(isinstance(entry, dict) for entry in section)
        for section in sections
    )


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()

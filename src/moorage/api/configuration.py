"""ConfigMaps, Secrets and ServiceAccounts. Source: core/v1."""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta, ObjectReference
from moorage.api.pods import LocalObjectReference


class ConfigMap(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Secret(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: dict[str, str] = {}
    string_data: dict[str, str] = {}
    type: str = ""


class ServiceAccount(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    secrets: tuple[ObjectReference, ...] = ()
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    automount_service_account_token: bool | None = None

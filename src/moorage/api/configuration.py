"""ConfigMaps, Secrets and ServiceAccounts. Source: core/v1."""

from __future__ import annotations

from datetime import date
from typing import Final

from moorage.api.meta import Object, ObjectMeta, ObjectReference
from moorage.api.pods import LocalObjectReference

# Secrets that hold tokens of service accounts, and what is noted about their use.
#
# Source: API docs "Legacy ServiceAccount token tracking" and "token cleaner".

TYPE: Final = "kubernetes.io/service-account-token"
TOKEN_KEY: Final = "token"
"""Entry of the Secret that has the token."""
ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"
ACCOUNT_UID: Final = "kubernetes.io/service-account.uid"
LAST_USED: Final = "kubernetes.io/legacy-token-last-used"
"""Label: the day on which the token was last used."""
INVALID_SINCE: Final = "kubernetes.io/legacy-token-invalid-since"
"""Label: the day since which the token is refused."""

TRACKING_NAMESPACE: Final = "kube-system"
TRACKING_NAME: Final = "kube-apiserver-legacy-service-account-token-tracking"
TRACKING_KEY: Final = "since"
"""ConfigMap that says since which day uses are noted."""


def parse_day(text: str) -> date | None:
    """Return a day of the form 2026-01-31, None for any other text."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if day.isoformat() == text else None


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

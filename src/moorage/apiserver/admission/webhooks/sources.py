"""Sources of webhooks: the server's own copy of the stored configurations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.storage import Change, WatchCache


class Webhook(msgspec.Struct, frozen=True):
    """A webhook of a configuration. `fields` are those of the API.

    `uid` names it among all webhooks, and changes with its configuration, whose name is
    `configuration`. `match` has its rules and
    selectors as a `MatchResources`.
    """

    uid: str
    configuration: str
    fields: Obj
    match: Mapping[str, Any]

    @property
    def name(self) -> str:
        name: str = self.fields["name"]
        return name

    @property
    def ignores_failures(self) -> bool:
        return bool(self.fields.get("failurePolicy") == "Ignore")

    @classmethod
    def of(cls, configuration: Obj) -> Iterator[Webhook]:
        """Yield the webhooks of a configuration, in their order."""
        metadata = configuration["metadata"]
        for index, fields in enumerate(configuration.get("webhooks", ())):
            match = {
                "resourceRules": fields.get("rules", ()),
                "matchPolicy": fields.get("matchPolicy"),
                "namespaceSelector": fields.get("namespaceSelector"),
                "objectSelector": fields.get("objectSelector"),
            }
            uid = f"{metadata['uid']}/{metadata.get('generation', 0)}/{index}"
            yield cls(uid, metadata["name"], fields, match)


class CachedWebhooks:
    """The webhooks of one kind of configuration. Give `changed` to the store."""

    def __init__(self, cache: WatchCache[Stored], kind: Kind) -> None:
        self._cache = cache
        self._table = kind.prefix("")
        self._webhooks: tuple[Webhook, ...] = ()
        self._is_current = False

    def changed(self, changes: Iterable[Change]) -> None:
        """Forget what was decoded if a configuration is among the changes."""
        if any(change.key.startswith(self._table) for change in changes):
            self._is_current = False

    def webhooks(self) -> tuple[Webhook, ...]:
        """Return those with rules, in the order of the configurations' names."""
        if not self._is_current:
            self._is_current = True
            stored = self._cache.scan(self._table)
            self._webhooks = tuple(
                webhook
                for item in stored
                for webhook in Webhook.of(item.obj)
                if webhook.match["resourceRules"]
            )
        return self._webhooks

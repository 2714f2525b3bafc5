"""Live migration: workloads, classes and policies of a cluster, through its API alone.

The plan is made of the present state each time, so an interrupted migration is run again, and one
that is complete changes nothing. Every change is first tried as a server-side dry run; what is
written carries the resourceVersion that the plan was made for. Classes come before policies and
these before workloads, whose new pods need them.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.api.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    OperationError,
    StatusError,
)
from moorage.api.yaml_text import dump
from moorage.migrate.rules import Finding, Options, Severity
from moorage.migrate.rules.live_objects import (
    LiveFacts,
    class_objects,
    is_left_to_owner,
    merge_patch,
    migrate_live_object,
)
from moorage.migrate.text_diff import NO_FILE, unified
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.discovery import Discovered, discover
from moorage.wire.client.resources import PartialObject, Resource
from moorage.wire.client.rest import PAGE_SIZE, Client, PatchType

_MANAGER = "moor-migrate"
_USER_AGENT = "moor-migrate"
_TRIES = 5
_CORE = ""
_WORKLOADS = (
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("apps", "replicasets"),
    (_CORE, "replicationcontrollers"),
    (_CORE, "podtemplates"),
    ("batch", "cronjobs"),
)
# Their templates cannot be changed.
_IMMUTABLE = ((_CORE, "pods"), ("batch", "jobs"))
_CLASSES = ("node.k8s.io", "runtimeclasses")
_ALPHA = "v1alpha1"
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_RBAC = "rbac.authorization.k8s.io"
_RBAC_PLURALS = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
_POLICY_GROUPS = frozenset(
    {
        "kyverno.io", "policies.kyverno.io", "mutations.gatekeeper.sh", "constraints.gatekeeper.sh",
        "templates.gatekeeper.sh",
    }
)  # fmt: skip
_SECURITY_POLICIES = ("policy", "podsecuritypolicies")
_UNSHOWN = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")


class UnusableCredentialsError(OperationError):
    """The certificate or key of a kubeconfig cannot be used."""


@dataclass(slots=True)
class LiveResult:
    """What a live migration found and did: a diff for each change, and the objects written."""

    diffs: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    all_findings: dict[Finding, None] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings, each once."""
        return tuple(self.all_findings)

    def find(self, severity: Severity, place: str, text: str) -> None:
        """Add a finding."""
        self.all_findings[Finding(severity, place, text)] = None


async def migrate_live(config: ClientConfig, options: Options, *, is_writing: bool) -> LiveResult:
    """Migrate a cluster, or only try it as a server-side dry run.

    An object that the server refuses is a finding, and the others go on. Raises
    UnusableCredentialsError, StatusError, UnreachableError.
    """
    try:
        async with Client(config, user_agent=_USER_AGENT) as client:
            discovered = await discover(client)
            migration = _Migration(client, discovered, options, is_writing=is_writing)
            for version, reason in discovered.failures:
                text = f"its kinds cannot be read: {reason}"
                migration.result.find(Severity.REFUSED, version, text)
            await migration.run()
            return migration.result
    except ssl.SSLError as error:
        raise UnusableCredentialsError(
            f"{config.server}: the kubeconfig's certificate or key cannot be used: {error}"
        ) from error


class _Migration:
    def __init__(
        self, client: Client, discovered: Discovered, options: Options, *, is_writing: bool
    ) -> None:
        self.result = LiveResult()
        self._client = client
        self._options = options
        self._is_writing = is_writing
        self._resources = {
            (entry.resource.group, entry.resource.plural): entry.resource
            for entry in discovered.served
            if "list" in entry.verbs
        }

    async def run(self) -> None:
        """Migrate everything, in an order in which nothing refers to what is not there yet."""
        facts = LiveFacts.of(
            [item async for item in self._all_of(self._facts_resources())], self._options
        )
        workloads: list[tuple[Resource[PartialObject], dict[str, Any]]] = []
        meanings = set()
        for resource in self._present(*_WORKLOADS):
            async for item in self._list(resource):
                outcome = migrate_live_object(item, facts)
                if is_left_to_owner(item) or not (outcome.operations or outcome.notes):
                    continue
                workloads.append((resource, item))
                if outcome.meaning is not None:
                    meanings.add(outcome.meaning)
        for created, notes, place in class_objects(meanings, facts):
            self._report(place, notes)
            if created is not None:
                await self._create(_CLASSES, created)
        for item in facts.policies:
            outcome = migrate_live_object(item, facts)
            self._report(_place_of(item), outcome.notes)
            for created in outcome.objects:
                plural = "runtimepolicies"
                if "namespace" not in created["metadata"]:
                    plural = "clusterruntimepolicies"
                await self._create(("runtime.moorage.dev", plural), created)
        for resource, item in workloads:
            await self._change(resource, item, facts)
        await self._report_immutable(facts)

    # Reading.

    def _present(self, *names: tuple[str, str]) -> list[Resource[PartialObject]]:
        return [self._resources[name] for name in names if name in self._resources]

    def _facts_resources(self) -> list[Resource[PartialObject]]:
        names = [_CLASSES, _DEFINITIONS, _SECURITY_POLICIES]
        names += [name for name in sorted(self._resources) if name[0] in _POLICY_GROUPS]
        names += [
            name
            for name in sorted(self._resources)
            if name[0] == "runtime.moorage.dev"
            and name[1] in ("runtimepolicies", "clusterruntimepolicies")
        ]
        if _SECURITY_POLICIES in self._resources:
            names += [(_RBAC, plural) for plural in _RBAC_PLURALS]
        return self._present(*names)

    async def _all_of(
        self, resources: Sequence[Resource[PartialObject]]
    ) -> AsyncIterator[dict[str, Any]]:
        for resource in resources:
            async for item in self._list(resource):
                yield item

    async def _list(self, resource: Resource[PartialObject]) -> AsyncIterator[dict[str, Any]]:
        """Yield the objects of a resource, read a page at a time; items get kind and version."""
        token = ""
        while True:
            query = {"limit": str(PAGE_SIZE), "continue": token}
            body = await self._client.request("GET", resource.path(), query=query)
            page = msgspec.json.decode(body)
            for item in page.get("items") or ():
                yield {"apiVersion": resource.api_version, "kind": resource.kind, **item}
            token = (page.get("metadata") or {}).get("continue", "")
            if not token:
                return

    # Writing.

    async def _create(self, name: tuple[str, str], created: dict[str, Any]) -> None:
        place = _place_of(created)
        resource = self._resources.get(name)
        if resource is None:
            self.result.find(
                Severity.SKIPPED,
                place,
                f"the cluster does not serve {created['kind']}; install its definition and migrate "
                "again",
            )
            return
        if name == _CLASSES and resource.version == _ALPHA:
            self.result.find(
                Severity.SKIPPED,
                place,
                f"the cluster serves {resource.api_version} alone; upgrade it and migrate again",
            )
            return
        # Before 1.20 classes were v1beta1, whose form is the same.
        created = created | {"apiVersion": resource.api_version}
        path = resource.path(created["metadata"].get("namespace"))
        try:
            tried = await self._send("POST", path, created, is_dry=True)
            self.result.diffs.append(_diff(place, None, tried))
            if self._is_writing:
                await self._send("POST", path, created, is_dry=False)
                self.result.written.append(place)
        except AlreadyExistsError:
            # Another migration, or a user, was first.
            return
        except StatusError as error:
            self.result.find(Severity.REFUSED, place, f"the server refuses it: {error}")

    async def _change(
        self, resource: Resource[PartialObject], item: dict[str, Any], facts: LiveFacts
    ) -> None:
        metadata = item["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        place = _place_of(item)
        for _ in range(_TRIES):
            outcome = migrate_live_object(item, facts)
            if not outcome.operations:
                self._report(place, outcome.notes)
                return
            patch = merge_patch(item, outcome.operations)
            try:
                tried = await self._send("PATCH", path, patch, is_dry=True)
                if self._is_writing:
                    await self._send("PATCH", path, patch, is_dry=False)
            except NotFoundError:
                return
            except ConflictError:
                try:
                    present = msgspec.json.decode(await self._client.request("GET", path))
                except NotFoundError:
                    return
                item = {"apiVersion": resource.api_version, "kind": resource.kind, **present}
                continue
            except StatusError as error:
                self._report(place, outcome.notes)
                self.result.find(Severity.REFUSED, place, f"the server refuses it: {error}")
                return
            self._report(place, outcome.notes)
            self.result.diffs.append(_diff(place, item, tried))
            if self._is_writing:
                self.result.written.append(place)
            return
        self.result.find(Severity.REFUSED, place, "it changes all the time; migrate again")

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any], *, is_dry: bool
    ) -> dict[str, Any]:
        answer = await self._client.request(
            method,
            path,
            body=msgspec.json.encode(body),
            content_type=PatchType.MERGE.value if method == "PATCH" else "application/json",
            query={"fieldManager": _MANAGER, "dryRun": "All" if is_dry else ""},
        )
        stored: dict[str, Any] = msgspec.json.decode(answer)
        return stored

    # Reporting.

    async def _report_immutable(self, facts: LiveFacts) -> None:
        for resource in self._present(*_IMMUTABLE):
            async for item in self._list(resource):
                if is_left_to_owner(item):
                    continue
                outcome = migrate_live_object(item, facts)
                if outcome.operations or outcome.notes:
                    self.result.find(
                        Severity.NOTE,
                        _place_of(item),
                        "its class cannot be changed: migrate its manifest and create it again",
                    )

    def _report(self, place: str, notes: Sequence[tuple[Severity, str]]) -> None:
        for severity, text in notes:
            self.result.find(severity, place, text)


def _place_of(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata") or {}
    name = f"{str(item.get('kind', '')).lower()}/{metadata.get('name', '')}"
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{name}" if namespace else name


def _diff(place: str, old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> str:
    before = "" if old is None else dump(_shown(old))
    return unified(NO_FILE if old is None else place, place, before, dump(_shown(new)))


def _shown(item: Mapping[str, Any]) -> Any:
    """Return an object without status and what the server alone sets, its keys sorted."""
    metadata = {key: value for key, value in item["metadata"].items() if key not in _UNSHOWN}
    shown = {key: value for key, value in item.items() if key != "status"}
    return msgspec.to_builtins(shown | {"metadata": metadata}, order="deterministic")

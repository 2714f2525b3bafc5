"""Status of ValidatingAdmissionPolicies: what is wrong with their expressions' types."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import msgspec

from moorage.api.admission_policies import Expressions, PolicyRule, ValidatingAdmissionPolicy
from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.controllers.loop import Loop
from moorage.wire.client.discovery import read_version
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import VALIDATING_ADMISSION_POLICIES
from moorage.wire.client.rest import Client, PatchType

# Schemas of kinds, from the OpenAPI documents that the API server serves.
#
# References are replaced by what they refer to; one that leads back to itself becomes an object of
# which nothing is known. Source: apiserver `cel/openapi/resolver` of Kubernetes 1.36.

Schema = dict[str, Any]
Kind = tuple[str, str, str]
"""(group, version, kind)."""

_REFERENCE = "#/components/schemas/"
_KINDS = "x-kubernetes-group-version-kind"
_ANY = "x-kubernetes-int-or-string"
_NODES = 100_000
"""The most that a schema may grow to; the largest of Kubernetes has 2,000."""


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, Any] = {}


class _Document(msgspec.Struct, frozen=True):
    components: _Components = _Components()


class Schemas:
    """The schemas of one server. The document of each group version is read once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._documents: dict[str, dict[str, Any]] = {}

    async def find(self, kind: Kind) -> Schema | None:
        """Return the schema of a kind, None where the server describes none.

        Raises StatusError and UnreachableError.
        """
        group, version, name = kind
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        if path not in self._documents:
            self._documents[path] = await self._read(path)
        schemas = self._documents[path]
        wanted = {"group": group, "version": version, "kind": name}
        for schema in schemas.values():
            if wanted in schema.get(_KINDS, ()):
                return _Resolution(schemas).resolve(schema)
        return None

    async def _read(self, path: str) -> dict[str, Any]:
        try:
            body = await self._client.request("GET", f"/openapi/v3/{path}")
        except NotFoundError:
            return {}
        return msgspec.json.decode(body, type=_Document).components.schemas


class _Resolution:
    """Copies a schema, with its references replaced."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._open: list[str] = []
        self._count = 0

    def resolve(self, schema: Schema) -> Schema:
        """Return a schema without references, cut off below where it grows without end."""
        self._count += 1
        reference = _reference(schema)
        if reference is None:
            return self._copy(schema)
        if reference in self._open or reference not in self._schemas or self._count > _NODES:
            return {"type": "object"}
        self._open.append(reference)
        try:
            return self.resolve(self._schemas[reference])
        finally:
            self._open.pop()

    def _copy(self, schema: Schema) -> Schema:
        copied = dict(schema)
        if "type" not in schema and ("oneOf" in schema or "anyOf" in schema):
            # Amounts, and numbers that may be text: all types, to be checked at evaluation.
            copied[_ANY] = True
        if isinstance(properties := schema.get("properties"), dict):
            copied["properties"] = {name: self.resolve(one) for name, one in properties.items()}
        for part in ("additionalProperties", "items"):
            if isinstance(inner := schema.get(part), dict):
                copied[part] = self.resolve(inner)
        return copied


def _reference(schema: Schema) -> str | None:
    """Return the name that a schema refers to; a description stands beside it in `allOf`."""
    if isinstance(text := schema.get("$ref"), str):
        return text.removeprefix(_REFERENCE)
    for part in schema.get("allOf", ()):
        if (inner := _reference(part)) is not None:
            return inner
    return None


# The controller of policies' status: checks types once for each generation.
#
# The result is advice: a policy acts as it would without. Kinds are those that the rules name
# without wildcards, ten of a rule at most. Source: API docs "Validating Admission Policy" (type
# checking); `pkg/controller/validatingadmissionpolicystatus` of Kubernetes 1.36.

MANAGER = "validatingadmissionpolicy-status-controller"

_MOST_KINDS = 10
_log = logging.getLogger("controllers")


def named_resources(rule: PolicyRule) -> Iterator[tuple[str, str, str]]:
    """Yield each (group, version, plural) of a rule, sorted; none of a group or version `*`."""
    plurals = [plural for plural in rule.resources if "*" not in plural and "/" not in plural]
    if any("*" in one for one in (*rule.api_groups, *rule.api_versions)):
        return
    yield from product(sorted(rule.api_groups), sorted(rule.api_versions), sorted(plurals))


class ValidatingAdmissionPolicyStatusController:
    """Writes the status of policies, whose names are the keys."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._policies = Informer(client, VALIDATING_ADMISSION_POLICIES, clock=clock)
        self._loop: Loop[str] = Loop(
            "policy status", self._reconcile, [(self._policies, self._policy_changed)], clock,
            owned=[self._policies],
        )  # fmt: skip

    async def run(self) -> None:
        """Reconcile until cancelled; the process that compiles starts with the first policy."""
        async with Evaluator() as self._evaluator:
            await self._loop.run()

    def _policy_changed(
        self, before: ValidatingAdmissionPolicy | None, after: ValidatingAdmissionPolicy | None
    ) -> Iterator[str]:
        del before
        if after is not None and after.status.observed_generation < after.metadata.generation:
            yield after.metadata.name

    async def _reconcile(self, name: str) -> float | None:
        policy = self._policies.get(name)
        if policy is None or policy.metadata.generation <= policy.status.observed_generation:
            return None
        warnings = await self._warnings(policy.spec)
        status = {
            "observedGeneration": policy.metadata.generation,
            "typeChecking": {"expressionWarnings": warnings} if warnings else {},
        }
        configuration = {
            "apiVersion": VALIDATING_ADMISSION_POLICIES.api_version,
            "kind": VALIDATING_ADMISSION_POLICIES.kind,
            "metadata": {"name": name, "uid": policy.metadata.uid},
            "status": status,
        }
        try:
            await self._client.patch(
                VALIDATING_ADMISSION_POLICIES,
                name,
                configuration,
                kind=PatchType.APPLY,
                subresource="status",
                field_manager=MANAGER,
                force=True,
            )
        except NotFoundError:
            return None  # It is gone.
        return None

    async def _warnings(self, spec: Expressions) -> list[dict[str, str]]:
        """Return an `ExpressionWarning` for each expression that is wrong for some kind."""
        source = msgspec.to_builtins(spec)
        schemas = Schemas(self._client)
        params = await _schema_of_params(spec, schemas)
        texts: dict[str, list[str]] = {}
        for kind in await self._kinds(spec):
            schema = await schemas.find(kind)
            if schema is None:
                continue
            group, version, name = kind
            shown = f"{group}/{version}" if group else version
            try:
                problems = await self._evaluator.type_problems(source, schema, params)
            except (LimitError, BusyError) as error:
                _log.warning("types of a policy for %s/%s are not checked: %s", shown, name, error)
                continue
            for problem in problems:
                text = f"{shown}, Kind={name}: {problem.detail}\n"
                texts.setdefault(f"spec{problem.path}", []).append(text)
        return [
            {"fieldRef": path, "warning": "\n".join(lines)} for path, lines in sorted(texts.items())
        ]

    async def _kinds(self, spec: Expressions) -> list[Kind]:
        """Return the kinds that the rules name and the server has, sorted."""
        kinds: set[Kind] = set()
        served: dict[str, dict[str, str]] = {}
        for rule in spec.match_constraints.resource_rules:
            of_rule: set[Kind] = set()
            for group, version, plural in named_resources(rule):
                api_version = f"{group}/{version}" if group else version
                if api_version not in served:
                    served[api_version] = await self._kinds_by_plural(api_version)
                if (kind := served[api_version].get(plural)) and len(of_rule) < _MOST_KINDS:
                    of_rule.add((group, version, kind))
            kinds |= of_rule
        return sorted(kinds)

    async def _kinds_by_plural(self, api_version: str) -> dict[str, str]:
        try:
            resources = await read_version(self._client, api_version)
        except NotFoundError:
            return {}
        return {one.resource.plural: one.resource.kind for one in resources}


async def _schema_of_params(spec: Expressions, schemas: Schemas) -> Schema | None:
    if spec.param_kind is None:
        return None
    group, _, version = spec.param_kind.api_version.rpartition("/")
    return await schemas.find((group, version, spec.param_kind.kind))

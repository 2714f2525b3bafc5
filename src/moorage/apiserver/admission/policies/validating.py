"""ValidatingAdmissionPolicy plugin: enforces the policies that bindings put in force.

Without any policy a write costs a look at an empty list. Source: apiserver
`admission/plugin/policy/validating`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from moorage.api import labels
from moorage.api.errors import StatusError, TooManyRequestsError
from moorage.apiserver.admission.admission_request import (
    in_version,
    input_of,
    is_shown,
    refused,
    versioned,
)
from moorage.apiserver.admission.authorization import Decide, authorizing
from moorage.apiserver.admission.chain import ANY, CONNECT, CREATE, DELETE, UPDATE, Scope
from moorage.apiserver.admission.matching import matched_version, namespace_of
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.cel.messages import Decision, PolicyResult
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.request import Attributes

# Parameters: the objects that a binding gives to a policy.
#
# Source: API docs "Parameter resources"; apiserver `policy/generic`.


class ParamError(ValueError):
    """The parameters of a binding cannot be found; the text is for the refusal."""


class ParamSource(Protocol):
    """Finds kinds and reads their objects."""

    def kind_of(self, api_version: str, kind: str) -> tuple[Kind, Served] | None:
        """Return the kind and version that are served under these names."""

    def find(self, kind: Kind, namespace: str, name: str) -> Obj | None:
        """Return an object as stored."""

    def all(self, kind: Kind, namespace: str) -> list[Obj]:
        """Return the objects of a namespace as stored; of a cluster-scoped kind all."""


def collect_params(
    param_kind: Mapping[str, str] | None,
    reference: Mapping[str, Any] | None,
    namespace: str,
    source: ParamSource,
) -> list[Any]:
    """Return the parameters of each evaluation of the policy: one None without parameters.

    `namespace` is that of the request. Raises ParamError.
    """
    if param_kind is None or reference is None:
        return [None]
    api_version, name = param_kind.get("apiVersion", ""), param_kind.get("kind", "")
    found = source.kind_of(api_version, name)
    if found is None:
        raise ParamError(f"paramKind kind `{api_version}, Kind={name}` not known")
    kind, served = found
    objects = _objects(kind, reference, namespace, source)
    if not objects and reference.get("parameterNotFoundAction") == "Deny":
        raise ParamError("no params found for policy binding with `Deny` parameterNotFoundAction")
    return [versioned(kind.name, served, obj) for obj in objects]


def _objects(
    kind: Kind, reference: Mapping[str, Any], namespace: str, source: ParamSource
) -> list[Obj]:
    own = reference.get("namespace", "")
    if kind.is_namespaced:
        namespace = own or namespace
        if not namespace:
            raise ParamError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                "resources"
            )
    elif own:
        raise ParamError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    else:
        namespace = ""
    if name := reference.get("name"):
        obj = source.find(kind, namespace, name)
        return [] if obj is None else [obj]
    selector = labels.from_object(reference.get("selector"))
    return [
        obj
        for obj in source.all(kind, namespace)
        if selector.matches(obj["metadata"].get("labels") or {})
    ]


# Selection of policies: those, and their bindings, that a write is subject to.
#
# Source: API docs "Validating Admission Policy"; apiserver `policy/generic`.


class PolicySource(Protocol):
    """Reads policies and bindings, in the order of their names."""

    def policies(self) -> tuple[Obj, ...]: ...

    def bindings(self, policy: str) -> tuple[Obj, ...]:
        """Return the bindings of a policy."""


class Selection:
    """Selects policies of one kind."""

    def __init__(self, source: PolicySource, namespace: Callable[[str], Obj | None]) -> None:
        """`namespace` returns a Namespace by its name."""
        self._source = source
        self._namespace = namespace

    def policies(self, attributes: Attributes) -> list[tuple[Obj, Served]]:
        """Return the policies that select a write, each with the version in which it does."""
        policies = self._source.policies()
        if not policies or not is_shown(attributes):
            return []
        return [
            (policy, served)
            for policy in policies
            if (served := self._selects(policy["spec"].get("matchConstraints"), attributes))
        ]

    def bindings(self, policy: Obj, attributes: Attributes) -> Iterator[Obj]:
        """Yield the bindings of a policy that select a write."""
        for binding in self._source.bindings(policy["metadata"]["name"]):
            if self._selects(binding["spec"].get("matchResources"), attributes) is not None:
                yield binding

    def namespace_of(self, attributes: Attributes) -> Obj | None:
        """Return the namespace of a write, None outside of namespaces."""
        return self._namespace(attributes.namespace) if attributes.namespace else None

    def _selects(self, match: Mapping[str, Any] | None, attributes: Attributes) -> Served | None:
        return matched_version(match or {}, attributes, self._labels_of)

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        found = self._namespace(namespace)
        labels: Mapping[str, str] = ((found or {}).get("metadata") or {}).get("labels") or {}
        return labels


_CODES = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413, "Unauthorized": 401}
_RETRY = {"retryAfterSeconds": 1}
_FAILURE = "validation.policy.admission.k8s.io/validation_failure"
"""Key of the audit annotation about a validation that does not hold."""


class ValidatingPolicies:
    """Refuses, warns about or permits writes as the policies decide."""

    name = "ValidatingAdmissionPolicy"
    scope = Scope.of([ANY], [CREATE, UPDATE, DELETE, CONNECT], [ANY])
    mutate = None

    def __init__(
        self,
        selection: Selection,
        params: ParamSource,
        evaluator: Evaluator,
        decide: Decide,
    ) -> None:
        self._selection = selection
        self._params = params
        self._evaluator = evaluator
        self._decide = decide

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the evaluation of the policies that select the write, None without any."""
        selected = self._selection.policies(attributes)
        return self._enforce(attributes, selected) if selected else None

    async def _enforce(self, attributes: Attributes, selected: list[tuple[Obj, Served]]) -> None:
        """Evaluate the policies in their order. Raises StatusError for the first denial."""
        denial: StatusError | None = None
        for policy, served in selected:
            annotations: dict[str, dict[str, None]] = {}
            for binding in self._selection.bindings(policy, attributes):
                for result in await self._results(attributes, policy, binding, served):
                    for decision in _counted(policy, result):
                        if _act(attributes, policy, binding, decision) and denial is None:
                            denial = _denial(attributes, policy, binding, decision)
                    for key, value in result.annotations.items():
                        annotations.setdefault(key, {})[value] = None
            for key, values in annotations.items():
                # Bindings, and their parameters, may each give another value.
                attributes.request.annotate(
                    f"{policy['metadata']['name']}/{key}", ", ".join(values)
                )
        if denial is not None:
            raise denial

    async def _results(
        self, attributes: Attributes, policy: Obj, binding: Obj, served: Served
    ) -> list[PolicyResult]:
        """Return the policy's results, one for each object of parameters."""
        try:
            return await self._evaluated(attributes, policy, binding, served)
        except ParamError as error:
            failure = Decision(f"failed to configure binding: {error}", is_error=True)
        except LimitError as error:
            failure = Decision(f"validation failed: {error}", is_error=True)
        except BusyError as error:
            raise TooManyRequestsError(str(error), dict(_RETRY)) from error
        return [PolicyResult([failure])]

    async def _evaluated(
        self, attributes: Attributes, policy: Obj, binding: Obj, served: Served
    ) -> list[PolicyResult]:
        spec, metadata = policy["spec"], policy["metadata"]
        params = collect_params(
            spec.get("paramKind"),
            binding["spec"].get("paramRef"),
            namespace_of(attributes),
            self._params,
        )
        if not params:
            return []
        namespace = self._selection.namespace_of(attributes)
        given = await in_version(attributes, served, input_of, attributes, served, namespace)
        return await self._evaluator.policy_results(
            f"{metadata['uid']}/{metadata['generation']}",
            spec,
            given,
            params,
            authorizing(self._decide, attributes.request.user),
        )


def _counted(policy: Obj, result: PolicyResult) -> list[Decision]:
    """Return the failed validations; errors only where the policy fails on them."""
    ignores_errors = policy["spec"].get("failurePolicy") == "Ignore"
    return [one for one in result.decisions if not (one.is_error and ignores_errors)]


def _act(attributes: Attributes, policy: Obj, binding: Obj, decision: Decision) -> bool:
    """Warn and annotate, if the binding says so. Returns whether it denies."""
    actions = binding["spec"].get("validationActions", ())
    names = {"policy": policy["metadata"]["name"], "binding": binding["metadata"]["name"]}
    if "Warn" in actions:
        attributes.request.warn(
            f"Validation failed for ValidatingAdmissionPolicy '{names['policy']}' "
            f"with binding '{names['binding']}': {decision.message}"
        )
    if "Audit" in actions:
        failure = {
            "message": decision.message,
            **names,
            "expressionIndex": decision.index,
            "validationActions": list(actions),
        }
        attributes.request.annotate(_FAILURE, msgspec.json.encode([failure]).decode())
    return "Deny" in actions


def _denial(attributes: Attributes, policy: Obj, binding: Obj, decision: Decision) -> StatusError:
    message = (
        f"ValidatingAdmissionPolicy '{policy['metadata']['name']}' with binding "
        f"'{binding['metadata']['name']}' denied request: {decision.message}"
    )
    error = refused(attributes, message)
    error.status_reason = decision.reason
    error.status_code = _CODES.get(decision.reason, 422)
    error.details = {**(error.details or {}), "causes": [{"message": message}]}
    return error

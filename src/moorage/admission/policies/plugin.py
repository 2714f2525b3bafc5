"""ValidatingAdmissionPolicy plugin: enforces the policies that bindings put in force.

Without any policy a write costs a look at an empty list. Source: apiserver
`admission/plugin/policy/validating`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

from moorage.admission.admission_request import in_version, input_of, is_shown
from moorage.admission.chain import ANY, CREATE, DELETE, UPDATE, Scope
from moorage.admission.matching import matched_version, namespace_of
from moorage.admission.policies.params import ParamError, ParamSource, collect_params
from moorage.admission.refusal import refused
from moorage.api.errors import StatusError, TooManyRequestsError
from moorage.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.cel.messages import Decision
from moorage.registry.kind import Obj, Served
from moorage.registry.request import Attributes

_CODES = {"Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413, "Unauthorized": 401}
_RETRY = {"retryAfterSeconds": 1}


class PolicySource(Protocol):
    """Reads policies and bindings, in the order of their names."""

    def policies(self) -> tuple[Obj, ...]: ...

    def bindings(self, policy: str) -> tuple[Obj, ...]:
        """Return the bindings of a policy."""


class ValidatingPolicies:
    """Refuses, warns about or permits writes as the policies decide."""

    name = "ValidatingAdmissionPolicy"
    scope = Scope.of([ANY], [CREATE, UPDATE, DELETE], [ANY])
    mutate = None

    def __init__(
        self,
        source: PolicySource,
        params: ParamSource,
        namespace: Callable[[str], Obj | None],
        evaluator: Evaluator,
    ) -> None:
        """`namespace` returns a Namespace by its name."""
        self._source = source
        self._params = params
        self._namespace = namespace
        self._evaluator = evaluator

    def validate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the evaluation of the policies that select the write, None without any."""
        if not is_shown(attributes):
            return None
        policies = self._source.policies()
        selected = [
            (policy, served)
            for policy in policies
            if (served := self._selects(policy["spec"].get("matchConstraints"), attributes))
        ]
        return self._enforce(attributes, selected) if selected else None

    def _selects(self, match: Mapping[str, Any] | None, attributes: Attributes) -> Served | None:
        return matched_version(match or {}, attributes, self._labels_of)

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        found = self._namespace(namespace)
        labels: Mapping[str, str] = ((found or {}).get("metadata") or {}).get("labels") or {}
        return labels

    async def _enforce(self, attributes: Attributes, selected: list[tuple[Obj, Served]]) -> None:
        """Evaluate the policies in their order. Raises StatusError for the first denial."""
        denial: StatusError | None = None
        for policy, served in selected:
            for binding in self._source.bindings(policy["metadata"]["name"]):
                if self._selects(binding["spec"].get("matchResources"), attributes) is None:
                    continue
                for decision in await self._decisions(attributes, policy, binding, served):
                    if self._act(attributes, policy, binding, decision) and denial is None:
                        denial = _denial(attributes, policy, binding, decision)
        if denial is not None:
            raise denial

    async def _decisions(
        self, attributes: Attributes, policy: Obj, binding: Obj, served: Served
    ) -> list[Decision]:
        """Return what does not hold; errors only where the policy fails on them."""
        spec = policy["spec"]
        try:
            found = list(await self._evaluated(attributes, policy, binding, served))
        except ParamError as error:
            found = [Decision(f"failed to configure binding: {error}", is_error=True)]
        except LimitError as error:
            found = [Decision(f"validation failed: {error}", is_error=True)]
        except BusyError as error:
            raise TooManyRequestsError(str(error), dict(_RETRY)) from error
        ignores_errors = spec.get("failurePolicy") == "Ignore"
        return [decision for decision in found if not (decision.is_error and ignores_errors)]

    async def _evaluated(
        self, attributes: Attributes, policy: Obj, binding: Obj, served: Served
    ) -> Iterator[Decision]:
        spec, metadata = policy["spec"], policy["metadata"]
        params = collect_params(
            spec.get("paramKind"),
            binding["spec"].get("paramRef"),
            namespace_of(attributes),
            self._params,
        )
        if not params:
            return iter(())
        namespace = self._namespace(attributes.namespace) if attributes.namespace else None
        given = await in_version(attributes, served, input_of, attributes, served, namespace)
        results = await self._evaluator.policy_results(
            f"{metadata['uid']}/{metadata['generation']}",
            spec,
            given,
            params,
        )
        return (decision for result in results for decision in result.decisions)

    def _act(self, attributes: Attributes, policy: Obj, binding: Obj, decision: Decision) -> bool:
        """Warn, if the binding says so. Returns whether it denies."""
        actions = binding["spec"].get("validationActions", ())
        if "Warn" in actions:
            attributes.request.warn(
                f"Validation failed for ValidatingAdmissionPolicy '{policy['metadata']['name']}' "
                f"with binding '{binding['metadata']['name']}': {decision.message}"
            )
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

"""ValidatingAdmissionPolicy plugin: enforces the policies that bindings put in force.

Without any policy a write costs a look at an empty list. Source: apiserver
`admission/plugin/policy/validating`.
"""

from __future__ import annotations

from collections.abc import Awaitable

import msgspec

from moorage.api.errors import StatusError, TooManyRequestsError
from moorage.apiserver.admission.admission_request import in_version, input_of
from moorage.apiserver.admission.authorization import Decide, authorizing
from moorage.apiserver.admission.chain import ANY, CONNECT, CREATE, DELETE, UPDATE, Scope
from moorage.apiserver.admission.matching import namespace_of
from moorage.apiserver.admission.policies.params import ParamError, ParamSource, collect_params
from moorage.apiserver.admission.policies.selection import Selection
from moorage.apiserver.admission.refusal import refused
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.cel.messages import Decision, PolicyResult
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.request import Attributes

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

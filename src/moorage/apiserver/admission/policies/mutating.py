"""MutatingAdmissionPolicy plugin: changes writes as the policies say that bindings put in force.

Without any policy a write costs a look at an empty list. Policies are invoked one after the other,
each with the object that the earlier ones left; a change runs the mutating plugins a second time.
Source: apiserver `admission/plugin/policy/mutating`, `policy/generic`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Iterator
from typing import Any

import msgspec

from moorage.api.errors import InvalidError, StatusError, TooManyRequestsError
from moorage.apiserver.admission.admission_request import Patching, in_version, input_of, refused
from moorage.apiserver.admission.authorization import Decide, authorizing
from moorage.apiserver.admission.chain import ANY, CONNECT, CREATE, UPDATE, Scope
from moorage.apiserver.admission.matching import namespace_of
from moorage.apiserver.admission.policies.validating import (
    ParamError,
    ParamSource,
    Selection,
    collect_params,
)
from moorage.apiserver.cel.evaluator import BusyError, Evaluator, LimitError
from moorage.apiserver.cel.messages import Mutation
from moorage.apiserver.registry.codec import Codec
from moorage.apiserver.registry.kind import Obj, Served
from moorage.apiserver.registry.patch import MergeSchema, TypedPatchError, merge_configuration
from moorage.apiserver.registry.patch.json_patch import (
    MAX_OPERATIONS,
    FailedTestError,
    apply_json_patch,
)
from moorage.apiserver.registry.request import Attributes, Reinvocation, Turn
from moorage.apiserver.registry.schema.errors import DecodeError

# Mutations of objects: apply configurations and JSON patches, as expressions give them.
#
# Source: apiserver `policy/mutating/patch` of Kubernetes 1.36.

_UNTYPED = "failed to convert patch object to typed object: "
_UNKNOWN_FIELD = re.compile(r'unknown field "(.*)"')


class MutationError(ValueError):
    """A mutation has no value, or cannot be applied; the text is for the refusal."""


class ConfigurationMerge:
    """Merges apply configurations into objects of any type."""

    def __init__(self, codec: Codec, merge_schema: MergeSchema) -> None:
        self._codec = codec
        self._merge_schema = merge_schema

    def __call__(self, type_name: str, whole: Obj, configuration: Obj) -> Obj:
        """Return an object with the fields of a configuration. Raises MutationError."""
        if not type_name:
            raise MutationError(f"error applying patch: {whole['kind']} has no merge rules")
        envelope = {"apiVersion": whole["apiVersion"], "kind": whole["kind"]}
        try:
            decoded = self._codec.fit_partial(type_name, {**configuration, **envelope})
            if decoded.complaints:
                raise TypedPatchError(_UNTYPED + ", ".join(map(_shown, decoded.complaints)))
            merged = merge_configuration(self._merge_schema, type_name, whole, decoded.obj)
        except DecodeError as error:
            raise MutationError(f"error applying patch: {_UNTYPED}{error}") from error
        except TypedPatchError as error:
            raise MutationError(f"error applying patch: {error}") from error
        return {**merged, **envelope}


def _shown(complaint: str) -> str:
    """Return a strict error about an unknown field in the words of structured merge."""
    match = _UNKNOWN_FIELD.fullmatch(complaint)
    return complaint if match is None else f".{match[1]}: field not declared in schema"


def apply_operations(whole: Obj, operations: list[Obj]) -> object:
    """Return an object after a JSON patch; one whose test fails changes nothing.

    Raises MutationError for a patch that cannot be applied.
    """
    if len(operations) > MAX_OPERATIONS:
        raise MutationError(f"JSON Patch: more than {MAX_OPERATIONS} operations")
    try:
        return apply_json_patch(whole, operations)
    except FailedTestError:
        return whole
    except InvalidError as error:
        raise MutationError(f"JSON Patch: {error.__cause__}") from error


_RETRY = {"retryAfterSeconds": 1}


class _Invocation(msgspec.Struct, frozen=True):
    """A policy for a write, with one binding and one object of parameters."""

    policy: Obj
    binding: Obj
    served: Served
    params: Any

    @property
    def key(self) -> str:
        metadata = (self.params or {}).get("metadata", {})
        place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        return f"{self.policy['metadata']['name']} {self.binding['metadata']['name']} {place}"


class _Failure(msgspec.Struct, frozen=True):
    """An error of an invocation; `reason` is that of the refusal."""

    policy: Obj
    binding: Obj
    message: str
    reason: str = "Forbidden"

    @property
    def text(self) -> str:
        policy, binding = self.policy["metadata"]["name"], self.binding["metadata"]["name"]
        return f"policy '{policy}' with binding '{binding}' denied request: {self.message}"


class MutatingPolicies:
    """Lets the policies that select a write change it."""

    name = "MutatingAdmissionPolicy"
    scope = Scope.of([ANY], [CREATE, UPDATE, CONNECT], [ANY])
    validate = None

    def __init__(
        self,
        selection: Selection,
        params: ParamSource,
        evaluator: Evaluator,
        decide: Decide,
        patching: Patching,
        merge: ConfigurationMerge,
    ) -> None:
        self._selection = selection
        self._params = params
        self._evaluator = evaluator
        self._decide = decide
        self._patching = patching
        self._merge = merge

    def mutate(self, attributes: Attributes) -> Awaitable[None] | None:
        """Return the invocation of the policies that select the write, None without any."""
        selected = self._selection.policies(attributes)
        if not selected or attributes.obj is None:
            return None
        return self._run(attributes, selected)

    async def _run(self, attributes: Attributes, selected: list[tuple[Obj, Served]]) -> None:
        """Invoke the policies in their order. Raises StatusError for failures that count."""
        failures: list[_Failure] = []
        # Bindings and parameters are chosen before any policy changes the object.
        invocations = [
            invocation
            for policy, served in selected
            for invocation in self._invocations(attributes, policy, served, failures)
        ]
        state = attributes.reinvocation = attributes.reinvocation or Reinvocation()
        turn = state.turns[self.name]
        if state.is_second and turn.last != attributes.obj:
            turn.call_candidates_again()
        for invocation in invocations:
            if not state.is_second or invocation.key in turn.again:
                await self._invoke(attributes, invocation, state, turn, failures)
        turn.last = copy.deepcopy(attributes.obj)
        counted = [one for one in failures if one.policy["spec"].get("failurePolicy") != "Ignore"]
        if counted:
            raise _refusal(attributes, counted)

    def _invocations(
        self, attributes: Attributes, policy: Obj, served: Served, failures: list[_Failure]
    ) -> Iterator[_Invocation]:
        for binding in self._selection.bindings(policy, attributes):
            try:
                params = collect_params(
                    policy["spec"].get("paramKind"),
                    binding["spec"].get("paramRef"),
                    namespace_of(attributes),
                    self._params,
                )
            except ParamError as error:
                failures.append(_Failure(policy, binding, f"failed to configure binding: {error}"))
                continue
            for own in params:
                yield _Invocation(policy, binding, served, own)

    async def _invoke(
        self,
        attributes: Attributes,
        invocation: _Invocation,
        state: Reinvocation,
        turn: Turn,
        failures: list[_Failure],
    ) -> None:
        """Apply the mutations of a policy in their order, unless its conditions do not hold."""
        spec = invocation.policy["spec"]
        is_changed = False
        for index, source in enumerate(spec["mutations"]):
            try:
                mutation = await self._evaluated(attributes, invocation, index)
                if not mutation.matches and not mutation.error:
                    return
                if mutation.error:
                    raise MutationError(mutation.error)
                is_changed |= await self._applied(attributes, invocation, source, mutation)
            except MutationError as error:
                failure = _Failure(invocation.policy, invocation.binding, str(error), "Invalid")
                failures.append(failure)
                if not mutation.matches:
                    return
        if is_changed:
            turn.call_candidates_again()
            state.is_needed = True
        if spec.get("reinvocationPolicy") == "IfNeeded":
            turn.candidates.add(invocation.key)

    async def _evaluated(
        self, attributes: Attributes, invocation: _Invocation, index: int
    ) -> Mutation:
        metadata = invocation.policy["metadata"]
        namespace, served = self._selection.namespace_of(attributes), invocation.served
        given = await in_version(attributes, served, input_of, attributes, served, namespace)
        try:
            return await self._evaluator.mutation(
                f"{metadata['uid']}/{metadata['generation']}",
                invocation.policy["spec"],
                given,
                invocation.params,
                index,
                authorizing(self._decide, attributes.request.user),
            )
        except LimitError as error:
            return Mutation(error=f"evaluation failed: {error}")
        except BusyError as error:
            raise TooManyRequestsError(str(error), dict(_RETRY)) from error

    async def _applied(
        self, attributes: Attributes, invocation: _Invocation, source: Obj, mutation: Mutation
    ) -> bool:
        """Apply a mutation. Returns whether it changed the object. Raises MutationError."""
        served = invocation.served
        if source["patchType"] == "JSONPatch":
            return await self._patching.apply(
                attributes,
                served,
                lambda whole: apply_operations(whole, mutation.value),
                is_strict=True,
            )
        type_name = served.type if attributes.form is None else attributes.form.type
        try:
            return await self._patching.apply(
                attributes, served, lambda whole: self._merge(type_name, whole, mutation.value)
            )
        except StatusError as error:
            raise MutationError(f"error applying patch: {error.message}") from error


def _refusal(attributes: Attributes, failures: list[_Failure]) -> StatusError:
    error = refused(attributes, "admission request denied by policy")
    error.message = failures[0].text
    error.status_reason = failures[0].reason
    causes = [{"message": failure.text} for failure in failures]
    error.details = {**(error.details or {}), "causes": causes}
    return error

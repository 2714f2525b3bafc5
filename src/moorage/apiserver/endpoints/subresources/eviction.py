"""Eviction: a pod is deleted if its disruption budget permits it.

Webhooks and policies see the Eviction, not what it writes. Source: policy/v1 `Eviction`; core
registry `pod/storage/eviction.go` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from moorage.api import labels
from moorage.api.clock import Clock, format_time
from moorage.api.conditions import is_ready
from moorage.api.disruptions import (
    BUDGET_CAUSE,
    DISRUPTION_ALLOWED,
    DISRUPTION_TARGET,
    SYNC_FAILED,
    PodDisruptionBudget,
    PodDisruptionBudgetStatus,
    with_permission,
)
from moorage.api.errors import (
    BadRequestError,
    ConflictError,
    FieldError,
    ForbiddenError,
    InvalidError,
    StatusError,
    TooManyRequestsError,
)
from moorage.api.pods import ENDED_PHASES, Pod
from moorage.apiserver.endpoints.admitting import admit_body
from moorage.apiserver.endpoints.bodies import BodyDecoder
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.options import delete_options, write_request
from moorage.apiserver.endpoints.replies import Reply, success
from moorage.apiserver.registry.deletion import UNREAD_OPTION, DeleteOptions, check_preconditions
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.poddisruptionbudget import POD_DISRUPTION_BUDGET
from moorage.apiserver.registry.objects import Admission, Objects
from moorage.apiserver.registry.request import SYSTEM_MASTERS, Request, User
from moorage.apiserver.registry.stored import Stored

# Conditions that subresources write into a pod's status.


def set_pod_condition(pod: Obj, condition: Obj, now: str) -> None:
    """Set the condition of a type; its transition time changes with its status alone."""
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    for index, present in enumerate(conditions):
        if present["type"] == condition["type"]:
            is_same = present.get("status") == condition["status"]
            since = present.get("lastTransitionTime", now) if is_same else now
            conditions[index] = {**condition, "lastTransitionTime": since}
            return
    conditions.append({**condition, "lastTransitionTime": now})


_TYPE = "io.k8s.api.policy.v1.Eviction"
_USER = User(name="system:apiserver", groups=(SYSTEM_MASTERS,))
_TRIES = 20
_MOST_DISRUPTED_PODS = 2000
_RETRY_S = 10
_VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
_CONDITION = {
    "type": DISRUPTION_TARGET,
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


class EvictionSubresource(msgspec.Struct, frozen=True):
    """Serves `pods/eviction`."""

    decoder: BodyDecoder
    objects: Objects
    admission: Admission
    clock: Clock

    async def create(self, call: Call) -> Reply:
        """Delete a pod gracefully and record the reason in its status.

        Raises TooManyRequestsError when the pod's disruption budget does not permit it.
        """
        request = write_request(
            call.user, call.user_agent, call.query, "CreateOptions", annotations=call.annotations
        )
        eviction = await self.decoder.decode_as(call, request, "Eviction", "policy/v1", _TYPE)
        name = call.target.name
        eviction = await admit_body(self.admission, call, request, eviction)
        if eviction["metadata"].get("name", name) != name:
            raise BadRequestError("name in URL does not match name in Eviction object")
        body = eviction.get("deleteOptions") or {}
        options, is_dry_run = delete_options(call.query, body)
        if options.ignores_read_errors:
            raise _unread_option(name)
        request.is_dry_run = request.is_dry_run or is_dry_run
        request.is_own = True
        await self._evict(call, request, name, options)
        return success(201, call.document_form(), request.warnings)

    async def _evict(self, call: Call, request: Request, name: str, options: DeleteOptions) -> None:
        for _ in range(_TRIES):
            item = self.objects.get(call.kind, call.namespace, name)
            check_preconditions(call.kind, item.obj, options)
            pod = msgspec.convert(item.obj, Pod)
            if not _needs_no_budget(pod):
                await self._evict_within_budget(call, request, item, pod, options)
                return
            is_over = _is_over(pod)
            try:
                # A pending pod that starts meanwhile needs a budget.
                await self._delete(call, request, name, options if is_over else _of(item, options))
            except ConflictError:
                if is_over or options.resource_version is not None:
                    raise
                continue
            return
        raise _busy("")

    async def _evict_within_budget(
        self, call: Call, request: Request, item: Stored, pod: Pod, options: DeleteOptions
    ) -> None:
        budget = self._budget_of(pod)
        if budget is None:
            await self._delete(call, request, item.name, options)
            return
        name = budget.metadata.name
        if is_ready(pod.status.conditions) or not _spares_unhealthy(budget):
            await self._take_disruption(request, item, name)
            await self._delete(call, request, item.name, options)
            return
        try:
            # Not if the pod has become healthy meanwhile.
            await self._delete(call, request, item.name, _of(item, options))
        except ConflictError:
            if options.resource_version is not None:
                raise
            raise _busy(name) from None

    def _budget_of(self, pod: Pod) -> PodDisruptionBudget | None:
        """Return the budget that selects a pod. Raises StatusError for several."""
        budgets = list(self._selecting(pod))
        if len(budgets) > 1:
            raise StatusError(_SEVERAL)
        return budgets[0] if budgets else None

    def _selecting(self, pod: Pod) -> Iterator[PodDisruptionBudget]:
        for item in self.objects.scan(POD_DISRUPTION_BUDGET, pod.metadata.namespace):
            budget = msgspec.convert(item.obj, PodDisruptionBudget)
            try:
                selector = labels.from_object(budget.spec.selector)
            except ValueError:
                continue  # It selects nothing.
            if selector.matches(pod.metadata.labels):
                yield budget

    async def _take_disruption(self, request: Request, pod: Stored, name: str) -> None:
        """Count a disruption in a budget's status, unless it permits none.

        Raises TooManyRequestsError and ForbiddenError.
        """
        now = format_time(self.clock.now())

        def make_new(budget: Obj | None) -> Obj:
            assert budget is not None
            typed = msgspec.convert(budget, PodDisruptionBudget)
            if (refusal := _refusal(typed)) is not None:
                raise refusal
            status = replace(
                typed.status,
                disruptions_allowed=typed.status.disruptions_allowed - 1,
                disrupted_pods={**typed.status.disrupted_pods, pod.name: now},
            )
            if not status.disruptions_allowed:
                status = with_permission(status, now)
            return {**budget, "status": _merged(budget.get("status", {}), status)}

        own = Request(
            user=_USER, user_agent="apiserver", is_own=True, is_dry_run=request.is_dry_run
        )
        kind = POD_DISRUPTION_BUDGET
        await self.objects.update(
            own, kind, kind.storage, pod.namespace, name, make_new,
            subresource="status", is_patch=True,
        )  # fmt: skip

    async def _delete(
        self, call: Call, request: Request, name: str, options: DeleteOptions
    ) -> None:
        """Record why, then delete the pod. Raises ConflictError for a failed precondition."""
        place = (request, call.kind, call.served, call.namespace, name)
        now = format_time(self.clock.now())

        def make_new(pod: Obj | None) -> Obj:
            assert pod is not None
            check_preconditions(call.kind, pod, options)
            if _wants_condition(pod):
                set_pod_condition(pod, dict(_CONDITION), now)
            return pod

        if not request.is_dry_run:
            updated = await self.objects.update(
                *place, make_new, subresource="status", is_patch=True
            )
            if options.resource_version is not None:
                # It is not the one any more that the precondition was checked against.
                options = replace(options, resource_version=str(updated.item.revision))
        await self.objects.delete(*place, options)


def _wants_condition(pod: Obj) -> bool:
    is_ended = pod.get("status", {}).get("phase") in ENDED_PHASES
    return not is_ended and "deletionTimestamp" not in pod["metadata"]


def _of(item: Stored, options: DeleteOptions) -> DeleteOptions:
    """Return options that hold for the pod as it was read, unless they name a revision."""
    if options.resource_version is not None:
        return options
    return replace(options, resource_version=str(item.revision))


def _is_over(pod: Pod) -> bool:
    return pod.status.phase in ENDED_PHASES or pod.metadata.deletion_timestamp is not None


def _needs_no_budget(pod: Pod) -> bool:
    """Return whether an eviction disrupts nothing: the pod does not run, or is being deleted."""
    return _is_over(pod) or pod.status.phase == "Pending"


def _spares_unhealthy(budget: PodDisruptionBudget) -> bool:
    """Return whether a pod that is not ready goes without being counted."""
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    status = budget.status
    return status.current_healthy >= status.desired_healthy > 0


def _refusal(budget: PodDisruptionBudget) -> StatusError | None:
    """Return why a budget permits no disruption now, None if it does."""
    name, status = budget.metadata.name, budget.status
    if status.observed_generation < budget.metadata.generation:
        return _busy(name)
    if status.disruptions_allowed < 0:
        return _forbidden(name, "pdb disruptions allowed is negative")
    if len(status.disrupted_pods) > _MOST_DISRUPTED_PODS:
        return _forbidden(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        )
    if status.disruptions_allowed == 0:
        return _too_many(_why(name, status))
    return None


def _why(name: str, status: PodDisruptionBudgetStatus) -> str:
    conditions = (one for one in status.conditions if one.type == DISRUPTION_ALLOWED)
    condition = next(conditions, None)
    is_refused = condition is not None and condition.status == "False" and condition.message
    start = f"The disruption budget {name}"
    if condition is not None and is_refused and condition.reason == SYNC_FAILED:
        why = f"because it failed sync: {condition.message}"
        return f"{start} does not allow evicting pods currently {why}"
    if status.current_healthy <= status.desired_healthy:
        return (
            f"{start} needs {status.desired_healthy} healthy pods and has "
            f"{status.current_healthy} currently"
        )
    if condition is not None and is_refused:
        why = f"({condition.reason}): {condition.message}"
        return f"{start} does not allow evicting pods currently {why}"
    return f"{start} does not allow evicting pods currently"


def _busy(name: str) -> StatusError:
    return _too_many(
        f"The disruption budget {name} is still being processed by the server.", _RETRY_S
    )


def _too_many(cause: str, retry_s: int = 0) -> StatusError:
    details: Obj = {"causes": [{"reason": BUDGET_CAUSE, "message": cause}]}
    if retry_s:
        details["retryAfterSeconds"] = retry_s
    return TooManyRequestsError(_VIOLATES, details)


def _forbidden(name: str, why: str, cause: str = "") -> StatusError:
    error = ForbiddenError.of("poddisruptionbudget", name, why, group="policy")
    message = f"The disruption budget {name} does not allow evicting pods currently: {cause or why}"
    causes = [{"reason": BUDGET_CAUSE, "message": message}]
    error.details = {**(error.details or {}), "causes": causes}
    return error


def _unread_option(name: str) -> StatusError:
    error = FieldError.invalid(
        f"deleteOptions.{UNREAD_OPTION}",
        True,
        "can not be set for pod eviction, try after removing the option",
    )
    return InvalidError.of("Eviction", name, [error], group="policy")


def _merged(status: Obj, new: PodDisruptionBudgetStatus) -> Obj:
    """Return a status as stored with what an eviction changes of it."""
    conditions = [{"message": "", **msgspec.to_builtins(one)} for one in new.conditions]
    return {
        **status,
        "disruptionsAllowed": new.disruptions_allowed,
        "disruptedPods": new.disrupted_pods,
        **({"conditions": conditions} if conditions else {}),
    }

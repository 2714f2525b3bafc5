"""Which plugins a write concerns, and in which order they run."""

from __future__ import annotations

import pytest

from moorage.api.errors import ForbiddenError
from moorage.apiserver.admission.chain import (
    ANY,
    CREATE,
    DELETE,
    UPDATE,
    AdmissionChain,
    Hook,
    Scope,
)
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.request import Attributes, Reinvocation
from tests.apiserver.admission.writes import pod, write


class FakePlugin:
    """Records its calls; refuses if configured to."""

    def __init__(self, name: str, log: list[str], scope: Scope, refuses_in: str = "") -> None:
        self.name = name
        self.scope = scope
        self._log = log
        self._refuses_in = refuses_in
        self.mutate: Hook | None = lambda _: self._note("mutate")
        self.validate: Hook | None = lambda _: self._note("validate")

    def _note(self, phase: str) -> None:
        self._log.append(f"{phase} {self.name}")
        if phase == self._refuses_in:
            raise ForbiddenError("no")


PODS = Scope.of(["pods"], [CREATE])


@pytest.mark.parametrize(
    ("scope", "resource", "subresource", "operation", "expected"),
    [
        (PODS, "pods", "", CREATE, True),
        (PODS, "pods", "", UPDATE, False),
        (PODS, "pods", "status", CREATE, False),
        (PODS, "nodes", "", CREATE, False),
        (Scope.of([ANY], [DELETE]), "leases.coordination.k8s.io", "", DELETE, True),
        (Scope.of([ANY], [DELETE]), "pods", "eviction", DELETE, False),
        (Scope.of(["pods"], [UPDATE], [ANY]), "pods", "resize", UPDATE, True),
        (Scope.of(["pods"], [UPDATE], ["", "status"]), "pods", "status", UPDATE, True),
    ],
)
def test_a_scope_covers_resource_subresource_and_operation(
    scope: Scope, resource: str, subresource: str, operation: str, expected: bool
) -> None:
    assert scope.covers(resource, subresource, operation) is expected


async def test_plugins_run_in_order_and_only_those_concerned() -> None:
    log: list[str] = []
    chain = AdmissionChain(
        [
            FakePlugin("first", log, PODS),
            FakePlugin("nodes", log, Scope.of(["nodes"], [CREATE])),
            FakePlugin("last", log, PODS),
        ]
    )
    attributes = write(POD, pod())
    await chain.mutate(attributes)
    await chain.validate(attributes)
    assert log == ["mutate first", "mutate last", "validate first", "validate last"]
    assert [plugin.name for plugin in chain._plugins] == ["first", "nodes", "last"]


async def test_a_refusal_ends_the_phase() -> None:
    log: list[str] = []
    chain = AdmissionChain(
        [FakePlugin("first", log, PODS, refuses_in="mutate"), FakePlugin("second", log, PODS)]
    )
    with pytest.raises(ForbiddenError):
        await chain.mutate(write(POD, pod()))
    assert log == ["mutate first"]


async def test_a_plugin_without_a_step_is_left_out_of_that_phase() -> None:
    log: list[str] = []
    plugin = FakePlugin("only validates", log, PODS)
    plugin.mutate = None
    chain = AdmissionChain([plugin])
    attributes: Attributes = write(POD, pod())
    await chain.mutate(attributes)
    await chain.validate(attributes)
    assert log == ["validate only validates"]


async def test_the_mutating_steps_run_once_more_after_a_webhook_changed_the_object() -> None:
    log: list[str] = []
    first, last = FakePlugin("first", log, PODS), FakePlugin("last", log, PODS)
    runs: list[bool] = []

    def change(attributes: Attributes) -> None:
        state = attributes.reinvocation = attributes.reinvocation or Reinvocation()
        runs.append(state.is_second)
        state.is_needed = True

    last.mutate = change
    await AdmissionChain([first, last]).mutate(write(POD, pod()))
    assert log == ["mutate first", "mutate first"]
    assert runs == [False, True]

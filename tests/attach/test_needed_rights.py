"""Needed rights of `moor attach` and `moor detach`: all that they ask for, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.meta import Raw
from moorage.apiserver.authorization import Authorizer
from moorage.apiserver.registry.rbac import Action
from moorage.attach.detachment import plan_detachment
from moorage.attach.manifests import KINDS, objects
from moorage.attach.needed_rights import (
    Grant,
    Right,
    attach_rights,
    described,
    detach_rights,
    grants,
    look_rights,
    served_resources,
)
from moorage.attach.served_objects import ServedObjects
from moorage.attach.survey import Level
from moorage.attach.values import Values
from moorage.cluster.access.certificates import Subject
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.resources import NODES, PODS, RUNTIME_CLASSES, RUNTIME_POLICIES
from moorage.wire.client.rest import Client
from tests.attach.test_attachment import Attachments, attachments, pod
from tests.authorities import prepared_authority

pytestmark = pytest.mark.slow

_USER = "attacher"
_RBAC = "rbac.authorization.k8s.io"
_REVIEW = "selfsubjectaccessreviews"
_NAMESPACE = Values().namespace


@asynccontextmanager
async def user_of(
    admin: Attachments, directory: Path, rules: Sequence[Raw], name: str = _USER
) -> AsyncIterator[Attachments]:
    """A user with these rules in the whole cluster."""
    await _bind(admin.client, name, "", rules)
    authority = prepared_authority(directory / "pki")
    pair = authority.issue(name, Subject(name))
    config = ClientConfig(
        server=admin.client.server,
        ca=authority.pair.certificate.read_bytes(),
        certificate=pair.certificate.read_bytes(),
        key=pair.key.read_bytes(),
    )
    async with Client(config, user_agent="test") as client:
        user = Attachments(admin.cluster)
        user.client = client
        yield user


async def _bind(
    admin: Client, user: str, namespace: str, rules: Sequence[Raw], name: str = "first"
) -> None:
    root = f"/apis/{_RBAC}/v1" + (f"/namespaces/{namespace}" if namespace else "")
    kind = "Role" if namespace else "ClusterRole"
    role = {"metadata": {"name": f"{user}-{name}"}, "rules": list(rules)}
    binding = {
        "metadata": {"name": f"{user}-{name}"},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": f"{user}-{name}"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }
    for plural, obj in ((f"{kind.lower()}s", role), (f"{kind.lower()}bindings", binding)):
        await admin.request("POST", f"{root}/{plural}", body=msgspec.json.encode(obj))


def _rules(rights: Iterable[Right]) -> list[Raw]:
    return [
        {"nonResourceURLs": [right.path], "verbs": [right.verb]}
        if right.path
        else {"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]}
        for right in rights
    ]


_ALL: list[Raw] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[Action]:
    """What the user asked the API server for."""
    seen: set[Action] = set()
    decide = Authorizer.decide

    def recording(self: Authorizer, user: Any, action: Action, *more: Any) -> Any:
        if user.name == _USER and action.is_resource and action.resource != _REVIEW:
            seen.add(action)
        return decide(self, user, action, *more)

    monkeypatch.setattr(Authorizer, "decide", recording)
    return seen


def _is_covered(action: Action, right: Right) -> bool:
    return (
        (action.verb, action.group, action.full_resource)
        == (right.verb, right.group, right.resource)
        and right.namespace in ("", action.namespace)
        and (not right.names or action.verb == "create" or action.name in right.names)
    )


async def _needed(user: Attachments, values: Values) -> list[Right]:
    resources = await served_resources(ServedObjects(user.client), KINDS)
    return list(attach_rights(values, objects(values), resources))


async def test_what_is_asked_for_is_what_is_needed(tmp_path: Path, asked: set[Action]) -> None:
    async with attachments(tmp_path) as admin, user_of(admin, tmp_path, _ALL) as user:
        needed = await _needed(user, Values())
        asked.clear()
        await user.attach()
        # The admission of roles asks for these two by itself.
        used = {action for action in asked if action.verb not in ("escalate", "bind", "*")}
        assert [one for one in used if not any(_is_covered(one, right) for right in needed)] == []
        unused = [right for right in needed if not any(_is_covered(one, right) for one in used)]
        assert described(unused) == ""
        await _leave_traces(admin.client)
        needed = await _needed_to_detach(user, (await plan_detachment(user.client)).objects)
        asked.clear()
        await user.detach()
        used = {one for one in asked if one.verb != "*" and not _is_look_around(one)}
        assert [one for one in used if not any(_is_covered(one, right) for right in needed)] == []


async def _leave_traces(admin: Client) -> None:
    marked = {"metadata": {"labels": {"runtime.moorage.dev/runc": "true"}}}
    await admin.patch(NODES, "n1", marked)
    gated = pod("gated", schedulingGates=[{"name": "runtime.moorage.dev/handler"}])
    await admin.create(PODS, gated, "default")
    managed = {"name": "runc", "labels": {"runtime.moorage.dev/managed": "true"}}
    await admin.create(RUNTIME_CLASSES, {"metadata": managed, "handler": "runc"})
    policy = {"metadata": {"name": "p"}, "spec": {"defaultClassName": "runc"}}
    await admin.create(RUNTIME_POLICIES, policy, "kube-system")


async def _needed_to_detach(user: Attachments, found: Sequence[Raw]) -> list[Right]:
    lease, pods = ("coordination.k8s.io/v1", "Lease"), ("v1", "Pod")
    resources = await served_resources(ServedObjects(user.client), (*KINDS, lease, pods))
    made = [
        _made("v1", "Secret", "moorage-webhook-tls"),
        _made(*lease, "moorage-controllers"),
        _made(*pods, "moorage-test-answers"),
        _made("v1", "ConfigMap", "moorage-runtime-classes", "kube-system"),
    ]
    return [*look_rights(resources), *detach_rights(found, made, resources)]


def _made(api_version: str, kind: str, name: str, namespace: str = _NAMESPACE) -> Raw:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _is_look_around(action: Action) -> bool:
    """Whether others' objects of our namespaces are listed; one that may not be counts as one."""
    return action.verb == "list" and action.namespace in (_NAMESPACE, "moorage-probes")


async def test_who_has_exactly_these_rights_attaches_and_detaches(tmp_path: Path) -> None:
    async with attachments(tmp_path) as admin, user_of(admin, tmp_path, []) as user:
        held = [*await _needed(user, Values()), *_granted(Values())]
        assert len((await user.plan()).findings) == 2
        await _bind(admin.client, _USER, "", _rules(held), "attach")
        await user.attach()
        assert (await plan_detachment(user.client)).missing_rights
        more = await _needed_to_detach(user, objects(Values()))
        await _bind(admin.client, _USER, "", _rules(more), "detach")
        assert described((await plan_detachment(user.client)).missing_rights) == ""
        await user.detach(removes_namespaces=True)
        assert (await plan_detachment(admin.client)).is_empty


def _granted(values: Values) -> list[Right]:
    made: list[Grant] = list(grants(objects(values), {}))
    return [right for grant in made for right in grant.rights]


def _without(rules: Iterable[Raw], plural: str, verb: str) -> list[Raw]:
    return [rule for rule in rules if (rule.get("resources"), rule["verbs"]) != ([plural], [verb])]


async def test_what_a_user_lacks_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    async with attachments(tmp_path) as admin:
        needed = await _needed(admin, Values())
        held = [*needed, *_granted(Values())]
        for plural, verb in (("nodes", "list"), ("events", "watch"), ("clusterroles", "create")):
            rules = _without(_rules(held), plural, verb)
            async with user_of(admin, tmp_path, rules, f"without-{plural}") as user:
                await _refused(user, f"you may not {verb} {plural}")
        async with user_of(admin, tmp_path, _rules(needed), "mean") as user:
            await _refused(user, "rights that you do not have yourself: ")
            may = [{"apiGroups": [_RBAC], "resources": ["clusterroles", "roles"],
                    "verbs": ["escalate", "bind"]}]  # fmt: skip
            await _bind(admin.client, "mean", "", may, "granting")
            assert (await user.plan()).is_possible
        async with user_of(admin, tmp_path, [], "tenant") as user:
            await _bind(admin.client, "tenant", "default", _ALL)
            # In the own namespace too, the parts need more than the namespace.
            await _refused(user, "watch customresourcedefinitions", Values(namespace="default"))
            missing = (await plan_detachment(user.client)).missing_rights
            assert Right("list", "", "nodes") in missing


async def _refused(user: Attachments, text: str, values: Values | None = None) -> None:
    before = await Attachments(user.cluster).dump()
    plan = await user.plan(values)
    problems = [one.text for one in plan.findings if one.level is Level.PROBLEM]
    assert any(text in problem for problem in problems), problems
    assert not plan.is_possible
    assert plan.changes == ()
    assert await Attachments(user.cluster).dump() == before

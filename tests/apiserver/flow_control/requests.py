"""Requests and schemas for the tests of flow control."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.flow_control import FlowSchema, PriorityLevelConfiguration
from moorage.apiserver.endpoints.routing import Target, parse_path
from moorage.apiserver.flow_control.configuration import Configuration, digest
from moorage.apiserver.flow_control.defaults import default_objects
from moorage.apiserver.registry.kinds.flowschema import FLOW_SCHEMA
from moorage.apiserver.registry.request import User

AUTHENTICATED = "system:authenticated"
ALICE = User("alice", groups=("dev", AUTHENTICATED))
MASTER = User("admin", groups=("system:masters", AUTHENTICATED))
NODE = User("system:node:n1", groups=("system:nodes", AUTHENTICATED))
CONTROLLERS = User("system:kube-controller-manager", groups=(AUTHENTICATED,))
SCHEDULER = User("system:kube-scheduler", groups=(AUTHENTICATED,))
ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))


def account(namespace: str, name: str) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups=groups)


def target(path: str) -> Target:
    return parse_path(path)


def schema(name: str, **spec: Any) -> FlowSchema:
    fields = {
        "priorityLevelConfiguration": {"name": "global-default"},
        "matchingPrecedence": 1000,
        "rules": [],
        **spec,
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": fields}, FlowSchema)


def level(name: str, **limited: Any) -> PriorityLevelConfiguration:
    fields = {
        "nominalConcurrencyShares": 10,
        "lendablePercent": 0,
        "limitResponse": {"type": "Reject"},
        **limited,
    }
    spec = {"type": "Limited", "limited": fields}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, PriorityLevelConfiguration)


def defaults(*more: FlowSchema | PriorityLevelConfiguration) -> Configuration:
    """The configuration of a new cluster, with more objects."""
    schemas = [one for one in more if isinstance(one, FlowSchema)]
    levels = [one for one in more if isinstance(one, PriorityLevelConfiguration)]
    for kind, obj, _ in default_objects():
        if kind is FLOW_SCHEMA:
            schemas.append(msgspec.convert(obj, FlowSchema))
        else:
            levels.append(msgspec.convert(obj, PriorityLevelConfiguration))
    return digest(levels, schemas)

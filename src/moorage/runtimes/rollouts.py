"""Rollouts as a person handles them: start, find, pause, resume, roll back, follow.

Through the API alone, so the cluster may be any Kubernetes whose controllers are ours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.errors import AlreadyExistsError, ExpiredError, NotFoundError, OperationError
from moorage.api.labels import Requirement, Selector
from moorage.api.meta import Raw
from moorage.api.runtime_group import API_VERSION
from moorage.api.runtime_rollouts import DONE, ROLLED_BACK, STOPPED, RuntimeRollout
from moorage.runtimes.custom_resources import install_definitions
from moorage.runtimes.known_classes import check_classes
from moorage.wire.client.resources import RUNTIME_ROLLOUTS
from moorage.wire.client.rest import Client

_OPERATORS = {"exists": "Exists", "!": "DoesNotExist", "in": "In", "notin": "NotIn"}
_EQUALITY = {"=": "In", "==": "In", "!=": "NotIn"}


class RolloutError(OperationError):
    """A rollout cannot be started or found."""


def default_name(from_: str, to: str, namespaces: Sequence[str] = ()) -> str:
    """Return the name of a rollout that is given none, with its namespace if it is of one."""
    in_ = f"-in-{namespaces[0]}" if len(namespaces) == 1 else ""
    return f"{from_}-to-{to}{in_}"


def label_selector(selector: Selector) -> Raw:
    """Return a selector as the API's object. Raises RolloutError for `>` and `<`."""
    return {"matchExpressions": [_expression(one) for one in selector.requirements]}


def _expression(requirement: Requirement) -> Raw:
    operator = _EQUALITY.get(requirement.operator) or _OPERATORS.get(requirement.operator)
    if operator is None:
        raise RolloutError(f"a rollout's selector cannot compare numbers: {requirement}")
    expression: Raw = {"key": requirement.key, "operator": operator}
    if operator in ("In", "NotIn"):
        expression["values"] = list(requirement.values)
    return expression


async def start(client: Client, name: str, spec: Raw) -> RuntimeRollout:
    """Create a rollout; the definitions of our kinds are installed where the server lacks them.

    Raises RolloutError if the name is taken, UnknownClassError without the classes, InvalidError if
    the specification is invalid.
    """
    await check_classes(client, (spec["from"], spec["to"]))
    body = {
        "apiVersion": API_VERSION,
        "kind": RUNTIME_ROLLOUTS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }
    try:
        return await client.create(RUNTIME_ROLLOUTS, body)
    except AlreadyExistsError as error:
        raise RolloutError(
            f"there is a rollout {name} already: delete it, or give another --name"
        ) from error
    except NotFoundError:
        await install_definitions(client)
    return await client.create(RUNTIME_ROLLOUTS, body)


async def list_rollouts(client: Client) -> list[RuntimeRollout]:
    """Return all rollouts, the oldest first; none where the kind does not exist."""
    try:
        rollouts = (await client.list(RUNTIME_ROLLOUTS)).items
    except NotFoundError:
        return []
    return sorted(
        rollouts, key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name)
    )


async def find(client: Client, name: str | None) -> RuntimeRollout:
    """Return a rollout; without a name, the only one that there is. Raises RolloutError."""
    rollouts = await list_rollouts(client)
    if name is not None:
        for rollout in rollouts:
            if rollout.metadata.name == name:
                return rollout
        raise RolloutError(f"there is no rollout {name}; `moor rollout list` lists them")
    if len(rollouts) == 1:
        return rollouts[0]
    if not rollouts:
        raise RolloutError("there is no rollout; `moor rollout start` starts one")
    names = ", ".join(rollout.metadata.name for rollout in rollouts)
    raise RolloutError(f"there are several rollouts, so name one: {names}")


async def pause(client: Client, name: str) -> RuntimeRollout:
    """Stop further moves of a rollout; what it has moved stays."""
    return await client.patch(RUNTIME_ROLLOUTS, name, {"spec": {"paused": True}})


async def resume(client: Client, name: str, now: datetime) -> RuntimeRollout:
    """Let a rollout go forward: after a pause, gates that stopped it, or a rollback."""
    spec = {"paused": False, "rollback": False, "resumedAt": format_time(now)}
    return await client.patch(RUNTIME_ROLLOUTS, name, {"spec": spec})


async def roll_back(client: Client, name: str) -> RuntimeRollout:
    """Let a rollout give every workload the class back that it had."""
    return await client.patch(RUNTIME_ROLLOUTS, name, {"spec": {"paused": False, "rollback": True}})


async def delete(client: Client, name: str) -> None:
    """Delete a rollout. Workloads keep the class that they have, and its marks."""
    await client.delete(RUNTIME_ROLLOUTS, name)


def has_ended(rollout: RuntimeRollout) -> bool:
    """Return whether a rollout's status is for its present specification, and nothing goes on."""
    status = rollout.status
    is_current = status.observed_generation >= rollout.metadata.generation
    return is_current and status.phase in (DONE, ROLLED_BACK, STOPPED)


async def follow(client: Client, name: str) -> AsyncIterator[RuntimeRollout]:
    """Yield a rollout now and after each change. Ends when it is deleted. Raises RolloutError."""
    while True:
        rollout = await find(client, name)
        yield rollout
        version = rollout.metadata.resource_version
        try:
            watching = client.watch(
                RUNTIME_ROLLOUTS, resource_version=version, field_selector=f"metadata.name={name}"
            )
            async with aclosing(watching) as events:  # type: ignore[type-var]
                async for event in events:
                    if event.type == "DELETED":
                        return
                    if event.object is not None:
                        yield event.object
        except ExpiredError:
            continue

"""Publication of handler states: labels, conditions and events of the Node, and RuntimeProfiles.

Only differences are written, and at most once in a few seconds when something changes all the time.
What others wrote in the meantime is put right: labels and conditions of this group on the own node,
and the profiles of its handlers, are this publisher's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from moorage.api.clock import Clock, format_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.nodes import Node
from moorage.api.runtime_group import RuntimeProfile, profile_name
from moorage.runtimes.probing.evidence import HandlerState, Working, same_handlers
from moorage.runtimes.probing.publication import (
    FAILED_REASON,
    WORKS_REASON,
    condition_changes,
    failure_text,
    label_changes,
    own_conditions,
    profile_body,
    profile_status,
    same_status,
)
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.informer import Informer
from moorage.wire.client.resources import NODES, RUNTIME_PROFILES
from moorage.wire.client.rest import Client, PatchType, UnreachableError

log = Log(__name__)

_QUIET_S = 0.1
_BUSY_S = 5.0
"""Pause between two publications while something changes all the time."""
_RETRY_S, _RETRY_LIMIT_S = 0.2, 30.0
NORMAL, WARNING = "Normal", "Warning"


class HandlerPublisher:
    """Writes the states of a node's handlers. `changed()` after each change, `run()` writes."""

    def __init__(
        self,
        client: Client,
        node: str,
        states: Callable[[], Mapping[str, HandlerState] | None],
        record: Callable[[str, str, str], None],
        clock: Clock,
        *,
        writes_conditions: bool = True,
    ) -> None:
        """Publish for the node named `node`.

        `states` returns None before the engine has listed its handlers: what an earlier process
        published stays until then. `record(type, reason, message)` records an event about the node.
        Without `writes_conditions` the node's status is left to its kubelet.
        """
        self._client = client
        self._node = node
        self._states = states
        self._record = record
        self._clock = clock
        self._writes_conditions = writes_conditions
        self._wake = asyncio.Event()
        self._informer = Informer(
            client, NODES, field_selector=f"metadata.name={node}", clock=clock
        )
        self._informer.add_handler(self._on_node)
        self._profile_informer = Informer(
            client, RUNTIME_PROFILES, field_selector=f"spec.nodeName={node}", clock=clock
        )
        self._profile_informer.add_handler(self._on_profile)
        self._reported: dict[str, tuple[Working, str]] = {}
        self._profiles: dict[str, RuntimeProfile] = {}
        self._knows_profiles = False

    def changed(self) -> None:
        """Have the states published. Does not block."""
        self._record_events()
        self._wake.set()

    async def run(self) -> None:
        """Publish changes until cancelled."""
        backoff = Backoff(first_s=_RETRY_S, limit_s=_RETRY_LIMIT_S)
        is_following_profiles = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            await self._informer.wait_synced()
            while True:
                await self._wake.wait()
                # A start changes many states at once.
                await self._clock.sleep(_QUIET_S)
                self._wake.clear()
                try:
                    has_written = await self._publish()
                except (StatusError, UnreachableError) as error:
                    pause_s = backoff.next_s()
                    log.debug("handlers not published yet", reason=error)
                    self._knows_profiles = False
                    self._wake.set()
                    await self._clock.sleep(pause_s)
                    continue
                backoff.reset()
                if self._knows_profiles and not is_following_profiles:
                    # Not before: the server may not have the kind yet.
                    tasks.create_task(self._profile_informer.run())
                    is_following_profiles = True
                if has_written and self._wake.is_set():
                    await self._clock.sleep(_BUSY_S)

    def _on_node(self, before: Node | None, after: Node | None) -> None:
        if after is not None and (before is None or _differs(before, after)):
            self._wake.set()

    def _on_profile(self, before: RuntimeProfile | None, after: RuntimeProfile | None) -> None:
        """List the profiles again after a change that this publisher has not made."""
        either = after or before
        assert either is not None
        known = self._profiles.get(either.spec.handler)
        if after is None:
            is_expected = known is None
        elif known is None:
            is_expected = before is None
        else:
            is_expected = same_status(known.status, after.status)
        if not is_expected:
            self._knows_profiles = False
            self._wake.set()

    async def _publish(self) -> bool:
        """Write what differs; return whether something did. Raises StatusError."""
        listed = self._states()
        if listed is None:
            return False
        states = dict(listed)
        node = self._informer.get(self._node)
        if node is None:
            raise NotFoundError.of("nodes", self._node)
        has_written = await self._write_node(node, states)
        return await self._write_profiles(node, states) or has_written

    async def _write_node(self, node: Node, states: Mapping[str, HandlerState]) -> bool:
        labels = label_changes(node.metadata.labels, states)
        stamp = format_time(self._clock.now())
        conditions = (
            condition_changes(node.status.conditions, states, stamp)
            if self._writes_conditions
            else []
        )
        if labels:
            await self._client.patch(NODES, self._node, {"metadata": {"labels": labels}})
        if conditions:
            await self._client.patch(
                NODES,
                self._node,
                {"status": {"conditions": conditions}},
                kind=PatchType.STRATEGIC,
                subresource="status",
            )
        return bool(labels or conditions)

    async def _write_profiles(self, node: Node, states: Mapping[str, HandlerState]) -> bool:
        if not self._knows_profiles:
            self._knows_profiles = True
            found = await self._client.list(
                RUNTIME_PROFILES, field_selector=f"spec.nodeName={self._node}"
            )
            self._profiles = {profile.spec.handler: profile for profile in found.items}
        has_written = False
        same = same_handlers(states)
        for name in self._profiles.keys() - states.keys():
            await self._delete(self._profiles[name])
            del self._profiles[name]
            has_written = True
        for name, state in states.items():
            if state.working is not Working.PENDING:
                same_as = same.get(name, "")
                has_written = await self._write_profile(node, name, state, same_as) or has_written
        return has_written

    async def _write_profile(
        self, node: Node, name: str, state: HandlerState, same_as: str
    ) -> bool:
        present = self._profiles.get(name)
        if present is None:
            present = await self._client.create(RUNTIME_PROFILES, self._new_profile(node, name))
        status = profile_status(
            state, present.status, node.status.node_info.kernel_version,
            format_time(self._clock.now()), same_as=same_as,
        )  # fmt: skip
        self._profiles[name] = present
        if same_status(present.status, status):
            return False
        # As a whole: a patch would keep features and conditions that are gone.
        self._profiles[name] = await self._client.update(
            RUNTIME_PROFILES,
            profile_body(present, status),
            present.metadata.name,
            subresource="status",
        )
        return True

    def _new_profile(self, node: Node, name: str) -> dict[str, Any]:
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": node.metadata.name,
            "uid": node.metadata.uid,
        }
        return {
            "metadata": {"name": profile_name(self._node, name), "ownerReferences": [owner]},
            "spec": {"nodeName": self._node, "handler": name},
        }

    async def _delete(self, profile: RuntimeProfile) -> None:
        try:
            await self._client.delete(RUNTIME_PROFILES, profile.metadata.name)
        except NotFoundError:
            log.debug("profile is gone already", profile=profile.metadata.name)

    def _record_events(self) -> None:
        """Record an event for each handler that broke, or works again."""
        states = self._states() or {}
        for name, state in states.items():
            if state.working is Working.PENDING:
                continue
            before = self._reported.get(name)
            now = (state.working, state.reason)
            if before == now:
                continue
            self._reported[name] = now
            if state.working is Working.NO:
                message = f'runtime handler "{name}" does not work: {failure_text(state)}'
                self._record(WARNING, FAILED_REASON, message)
            elif before is not None and before[0] is Working.NO:
                self._record(NORMAL, WORKS_REASON, f'runtime handler "{name}" works again')
        for name in self._reported.keys() - states.keys():
            del self._reported[name]


def _differs(before: Node, after: Node) -> bool:
    return (
        before.metadata.labels != after.metadata.labels
        or before.metadata.uid != after.metadata.uid
        or own_conditions(before.status.conditions) != own_conditions(after.status.conditions)
    )

"""Publication of handler states as data: what to write on a node and in a profile.

Pure. A handler that works has the node label `runtime.moorage.dev/HANDLER=true`, and one for each
feature of its pods; system calls and capabilities are in the profile alone, since hundreds of
labels would go out with every change of the node. A handler that does not work, or did not, has the
condition `HANDLER.runtime.moorage.dev/Working`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from moorage.api.conditions import transitioned
from moorage.api.nodes import NodeCondition
from moorage.api.runtime_group import (
    GROUP,
    HANDLER_CONDITION_SUFFIX,
    SUPPORTED,
    WORKING,
    RuntimeProfile,
    RuntimeProfileStatus,
    RuntimeProgram,
    feature_label,
    handler_condition,
    handler_label,
)
from moorage.api.text import printable
from moorage.runtimeclass.features import is_labelled
from moorage.runtimes.probing.evidence import HandlerState, Working

FAILED_REASON = "RuntimeHandlerFailed"
WORKS_REASON = "RuntimeHandlerWorks"
_PROBE_SUCCEEDED, _PROBE_FAILED = "ProbeSucceeded", "ProbeFailed"
_TRUE = "true"
_MESSAGE_LIMIT = 1024
_NAME_LIMIT, _PATH_LIMIT, _DIGEST_LIMIT = 256, 4096, 128
"""Limits of the definition of RuntimeProfiles, by which one text too long would refuse all."""


def labels_of(states: Mapping[str, HandlerState]) -> dict[str, str]:
    """Return the node labels that states give."""
    labels = {}
    for name, state in states.items():
        if not state.is_working:
            continue
        labels[handler_label(name)] = _TRUE
        for feature in state.probed.features if state.probed else ():
            if is_labelled(feature.name) and feature.state == SUPPORTED:
                labels[feature_label(name, feature.name)] = _TRUE
    return labels


def label_changes(
    present: Mapping[str, str], states: Mapping[str, HandlerState]
) -> dict[str, str | None]:
    """Return the merge patch of a node's labels; empty where nothing is to be written.

    A handler without a verdict keeps the labels that it has.
    """
    wanted = labels_of(states)
    pending = {name for name, state in states.items() if state.working is Working.PENDING}
    unprobed = {name for name, state in states.items() if state.lacks_features}
    changes: dict[str, str | None] = {
        key: value for key, value in wanted.items() if present.get(key) != value
    }
    for key in present:
        handler, feature = _parsed_label(key)
        if not handler or key in wanted or handler in pending:
            continue
        if feature and handler in unprobed:
            continue
        changes[key] = None
    return changes


def _parsed_label(key: str) -> tuple[str, str]:
    """Return handler and feature of a label, empty for one that is not of a handler."""
    prefix, _, name = key.partition("/")
    if prefix == GROUP:
        # Other labels of the group are written by other controllers, with other names.
        return (name, "") if name not in _OTHER_LABELS else ("", "")
    handler = prefix.removesuffix(f".{GROUP}")
    return (handler, name) if handler != prefix else ("", "")


_OTHER_LABELS = frozenset({"managed", "isolation", "node", "probe", "default-class"})
"""Names of labels of the group that are not of handlers."""


def condition_changes(
    present: Iterable[NodeCondition], states: Mapping[str, HandlerState], stamp: str
) -> list[dict[str, Any]]:
    """Return the strategic merge patch of a node's conditions; empty without a change."""
    before = {condition.type: condition for condition in present}
    changes: list[dict[str, Any]] = []
    for name, state in states.items():
        type_ = handler_condition(name)
        earlier = before.get(type_)
        if state.working is Working.PENDING or (state.is_working and earlier is None):
            continue
        status, reason, message = _condition_of(state)
        if earlier is not None and (earlier.status, earlier.reason, earlier.message) == (
            status,
            reason,
            message,
        ):
            continue
        is_same = earlier is not None and earlier.status == status
        changes.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": stamp,
                "lastTransitionTime": earlier.last_transition_time
                if earlier is not None and is_same
                else stamp,
            }
        )
    known = {handler_condition(name) for name in states}
    changes += [
        {"type": type_, "$patch": "delete"}
        for type_ in before
        if type_.endswith(HANDLER_CONDITION_SUFFIX) and type_ not in known
    ]
    return changes


def own_conditions(present: Iterable[NodeCondition]) -> set[tuple[str, str, str, str]]:
    """Return type, status, reason and message of the conditions that are of handlers."""
    return {
        (condition.type, condition.status, condition.reason, condition.message)
        for condition in present
        if condition.type.endswith(HANDLER_CONDITION_SUFFIX)
    }


def _condition_of(state: HandlerState) -> tuple[str, str, str]:
    if state.is_working:
        return "True", _PROBE_SUCCEEDED, "a probe container ran"
    return "False", _PROBE_FAILED, _truncated(failure_text(state), _MESSAGE_LIMIT)


def failure_text(state: HandlerState) -> str:
    """Return why a handler does not work and what to do, as it can be printed.

    Engines and runtimes wrote some of it.
    """
    return printable(f"{state.reason}; {state.remedy}")


def profile_status(
    state: HandlerState,
    before: RuntimeProfileStatus,
    host_kernel: str,
    stamp: str,
    *,
    same_as: str = "",
) -> RuntimeProfileStatus:
    """Return the status of a profile. The last known features of a broken handler go.

    What a runtime or an engine printed may have any length and escape sequences of terminals: it is
    truncated, with escapes for what cannot be printed.
    """
    _, reason, message = _condition_of(state)
    condition = transitioned(
        before.conditions,
        WORKING,
        holds=state.is_working,
        reason=reason,
        message=message,
        stamp=stamp,
    )
    probed = state.probed
    program = state.handler.program
    return RuntimeProfileStatus(
        engine=_truncated(state.engine),
        program=RuntimeProgram(
            name=_truncated(program.name),
            version=_truncated(program.version),
            path=_truncated(program.path, _PATH_LIMIT),
            digest=_truncated(state.digest, _DIGEST_LIMIT),
        ),
        same_as=same_as,
        kernel=_truncated(probed.kernel) if probed else "",
        host_kernel=_truncated(host_kernel),
        isolation=probed.isolation if probed else "",
        probed_at=probed.probed_at if probed else stamp,
        features=tuple(
            msgspec.structs.replace(feature, message=_truncated(feature.message, _MESSAGE_LIMIT))
            for feature in (probed.features if probed else ())
        ),
        conditions=(condition,),
    )


def _truncated(text: str, most: int = _NAME_LIMIT) -> str:
    # One more than fits, so that it is seen to be too long.
    text = printable(text[: most + 1])
    return text if len(text) <= most else f"{text[: most - 1]}…"


def profile_body(present: RuntimeProfile, status: RuntimeProfileStatus) -> dict[str, Any]:
    """Return a profile with another status, for an update of the present one."""
    written: dict[str, Any] = msgspec.to_builtins(status)
    # Its zero value is Unknown, which the definition requires to be spelled.
    written["features"] = [
        {"name": feature.name, "state": feature.state, "message": feature.message}
        for feature in status.features
    ]
    return {
        "metadata": msgspec.to_builtins(present.metadata),
        "spec": msgspec.to_builtins(present.spec),
        "status": written,
    }


def same_status(before: RuntimeProfileStatus, after: RuntimeProfileStatus) -> bool:
    """Return whether two statuses differ in nothing but the times of their probes."""
    if not before.conditions:
        return False
    return msgspec.structs.replace(before, probed_at=None) == msgspec.structs.replace(
        after, probed_at=None
    )

"""What states of handlers become on nodes and in profiles."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.nodes import NodeCondition
from moorage.api.runtime_group import ProfileFeature, RuntimeProfileStatus, RuntimeProgram
from moorage.runtimes.custom_resources import definitions
from moorage.runtimes.probing.cache import ProbedHandler
from moorage.runtimes.probing.evidence import HandlerState, KnownHandler, Working
from moorage.runtimes.probing.publication import (
    condition_changes,
    label_changes,
    labels_of,
    profile_status,
    same_status,
)

_NOW, _LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
_FEATURES = (
    ProfileFeature(name="exec", state="Supported", message="yes"),
    ProfileFeature(name="gpu", state="Unsupported", message="no"),
    ProfileFeature(name="syscall-statx", state="Supported", message="yes"),
)


def _state(
    name: str, working: Working, features: tuple[ProfileFeature, ...] = _FEATURES
) -> HandlerState:
    probed = ProbedHandler(isolation="shared-kernel", features=features, probed_at=_NOW)
    return HandlerState(
        handler=KnownHandler(name=name),
        working=working,
        reason="it hangs" if working is Working.NO else "",
        remedy="repair it" if working is Working.NO else "",
        probed=probed if working is Working.YES else None,
    )


def test_a_working_handler_has_labels_of_itself_and_of_its_pods_features() -> None:
    states = {"crun": _state("crun", Working.YES), "kata": _state("kata", Working.NO)}
    assert labels_of(states) == {
        "runtime.moorage.dev/crun": "true",
        "crun.runtime.moorage.dev/exec": "true",
    }


def test_labels_of_what_is_gone_are_removed_and_those_of_others_stay() -> None:
    present = {
        "kubernetes.io/os": "linux",
        "runtime.moorage.dev/gone": "true",
        "gone.runtime.moorage.dev/exec": "true",
        "crun.runtime.moorage.dev/gpu": "true",
        "example.com/mine": "",
    }
    assert label_changes(present, {"crun": _state("crun", Working.YES)}) == {
        "runtime.moorage.dev/crun": "true",
        "crun.runtime.moorage.dev/exec": "true",
        "runtime.moorage.dev/gone": None,
        "gone.runtime.moorage.dev/exec": None,
        "crun.runtime.moorage.dev/gpu": None,
    }


def test_a_handler_without_a_verdict_keeps_its_labels() -> None:
    present = {"runtime.moorage.dev/crun": "true", "crun.runtime.moorage.dev/exec": "true"}
    assert label_changes(present, {"crun": _state("crun", Working.PENDING)}) == {}
    unprobed = _state("crun", Working.YES, ())
    assert label_changes(present, {"crun": unprobed}) == {}


_STATES = st.dictionaries(st.sampled_from(["crun", "runc", "kata"]), st.sampled_from(Working)).map(
    lambda found: {name: _state(name, working) for name, working in found.items()}
)


@given(_STATES, _STATES)
def test_what_was_written_is_not_written_again(
    before: dict[str, HandlerState], after: dict[str, HandlerState]
) -> None:
    labels: dict[str, str] = {}
    for states in (before, after):
        for key, value in label_changes(labels, states).items():
            if value is None:
                del labels[key]
            else:
                labels[key] = value
        assert label_changes(labels, states) == {}


def test_only_handlers_that_do_not_work_or_did_not_have_a_condition() -> None:
    states = {"crun": _state("crun", Working.YES), "kata": _state("kata", Working.NO)}
    changes = condition_changes((), states, _NOW)
    assert [(one["type"], one["status"], one["reason"]) for one in changes] == [
        ("kata.runtime.moorage.dev/Working", "False", "ProbeFailed")
    ]
    assert changes[0]["message"] == "it hangs; repair it"
    broken = NodeCondition(
        type="kata.runtime.moorage.dev/Working",
        status="False",
        reason="ProbeFailed",
        message="it hangs; repair it",
        last_transition_time=_NOW,
    )
    assert condition_changes([broken], states, _LATER) == []
    repaired = condition_changes([broken], {"kata": _state("kata", Working.YES)}, _LATER)
    assert (repaired[0]["status"], repaired[0]["lastTransitionTime"]) == ("True", _LATER)
    gone = condition_changes([broken], {}, _LATER)
    assert gone == [{"type": "kata.runtime.moorage.dev/Working", "$patch": "delete"}]


def test_a_profile_that_differs_in_its_time_alone_is_not_written() -> None:
    state = _state("crun", Working.YES)
    first = profile_status(state, RuntimeProfileStatus(), "6.1", _NOW)
    assert not same_status(RuntimeProfileStatus(), first)
    later = HandlerState(
        handler=state.handler,
        working=Working.YES,
        probed=ProbedHandler(isolation="shared-kernel", features=_FEATURES, probed_at=_LATER),
    )
    assert same_status(first, profile_status(later, first, "6.1", _LATER))
    broken = profile_status(_state("crun", Working.NO), first, "6.1", _LATER)
    assert not same_status(first, broken)
    assert broken.features == ()
    assert broken.conditions[0].last_transition_time == _LATER


def test_what_a_runtime_printed_fits_the_definition_whatever_its_length() -> None:
    long = "x" * 100_000
    state = HandlerState(
        handler=KnownHandler(
            name="liar", program=RuntimeProgram(name=long, version=long, path=long)
        ),
        engine=long,
        digest=long,
        working=Working.YES,
        probed=ProbedHandler(
            kernel=long, features=(ProfileFeature(name="exec", state="Supported", message=long),),
        ),
    )  # fmt: skip
    status = msgspec.to_builtins(profile_status(state, RuntimeProfileStatus(), long, _NOW))
    (definition,) = (
        one for one in definitions() if one["spec"]["names"]["kind"] == "RuntimeProfile"
    )
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert _too_long(status, schema["properties"]["status"]) == []


def test_what_a_terminal_would_obey_reaches_neither_profiles_nor_conditions() -> None:
    odd = "gVisor \x1b[2J\x1b]0;x\x07 \u202e1.0\r\n"
    program = RuntimeProgram(name=odd, version=odd, path=odd)
    broken, works = (
        HandlerState(
            handler=KnownHandler(name="liar", program=program),
            engine=odd, digest=odd, working=working, reason=odd, remedy=odd,
            probed=ProbedHandler(
                kernel=odd, features=(ProfileFeature(name="exec", state="Supported", message=odd),),
            ),
        )
        for working in (Working.NO, Working.YES)
    )  # fmt: skip
    for state in (broken, works):
        status = profile_status(state, RuntimeProfileStatus(), odd, _NOW)
        assert all(map(str.isprintable, _texts(msgspec.to_builtins(status))))
    (condition,) = condition_changes([], {"liar": broken}, _NOW)
    assert condition["message"].startswith(r"gVisor \x1b[2J\x1b]0;x\x07 \u202e1.0\r\n; gVisor")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    return [text for one in inner for text in _texts(one)]


def _too_long(value: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Return the paths of texts that are longer than a schema allows."""
    if isinstance(value, str):
        return [path] if len(value) > schema.get("maxLength", len(value)) else []
    if isinstance(value, dict):
        parts = [(name, one, schema["properties"][name]) for name, one in value.items()]
    else:
        parts = [(str(index), one, schema["items"]) for index, one in enumerate(value)]
    return [
        found for name, one, inner in parts for found in _too_long(one, inner, f"{path}.{name}")
    ]

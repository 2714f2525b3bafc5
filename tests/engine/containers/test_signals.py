"""Signals by every spelling that images and callers have."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.containers.signals import cri_signal_name, signal_number, stop_signal
from moorage.wire.cri import pb

NAMES = [name for name, _ in pb.Signal.items() if name != "RUNTIME_DEFAULT"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("SIGTERM", 15),
        ("TERM", 15),
        ("term", 15),
        (" 15 ", 15),
        ("SIGKILL", 9),
        ("SIGRTMIN", int(signal.SIGRTMIN)),
        ("SIGRTMIN+3", int(signal.SIGRTMIN) + 3),
        ("RTMINPLUS3", int(signal.SIGRTMIN) + 3),
        ("SIGRTMAX-2", int(signal.SIGRTMAX) - 2),
        ("SIGRTMAXMINUS2", int(signal.SIGRTMAX) - 2),
        ("", None),
        ("0", None),
        ("-1", None),
        ("65", None),
        ("SIGNONE", None),
        ("SIGTERM+1", None),
        ("SIGRTMIN+99", None),
        ("SIGRTMIN+x", None),
        ("SIGRTMIN+", None),
        ("SIGRTMAX--2", None),
        ("SIG_IGN", None),
        ("_DFL", None),
        ("²", None),
    ],
)
def test_a_signal_has_a_number_or_is_none(text: str, number: int | None) -> None:
    assert signal_number(text) == number


@given(st.text(max_size=20))
def test_no_text_is_an_error(text: str) -> None:
    number = signal_number(text)
    assert number is None or 0 < number < signal.NSIG


@pytest.mark.parametrize("name", NAMES)
def test_every_signal_of_the_cri_comes_back_by_its_name(name: str) -> None:
    number = signal_number(name)
    assert number is not None
    assert signal_number(cri_signal_name(number)) == number


@pytest.mark.parametrize(
    ("wanted", "image", "number"),
    [
        (pb.RUNTIME_DEFAULT, "", 15),
        (pb.RUNTIME_DEFAULT, "SIGQUIT", 3),
        (pb.SIGUSR1, "SIGQUIT", 10),
        (pb.RUNTIME_DEFAULT, "nonsense", 15),
    ],
)
def test_the_stop_signal_is_the_callers_then_the_images(
    wanted: pb.Signal.ValueType, image: str, number: int
) -> None:
    assert stop_signal(wanted, image) == number

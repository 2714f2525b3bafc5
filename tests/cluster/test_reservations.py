"""Reservations: taken once on a machine, released by the last process that holds them."""

from __future__ import annotations

import socket
import subprocess
import uuid

import pytest

from moorage.cluster.reservations import Reservations
from tests.descriptors import open_descriptors


def test_a_claim_is_taken_once_until_it_is_released() -> None:
    name = f"test-{uuid.uuid4()}"
    with Reservations() as ours, Reservations() as theirs:
        assert ours.take(name)
        assert ours.take(name)
        assert not theirs.take(name)
        ours.release(name)
        assert theirs.take(name)
        assert not ours.take(name)
    with Reservations() as later:
        assert later.take(name)


def test_the_program_that_replaces_this_one_holds_the_claims() -> None:
    name = f"test-{uuid.uuid4()}"
    with Reservations() as starting:
        assert starting.take(name)
        starting.keep_through_exec()
        heir = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    with heir, Reservations() as other:
        assert not other.take(name)
        heir.communicate()
        assert other.take(name)


def test_other_programs_do_not_hold_claims() -> None:
    name = f"test-{uuid.uuid4()}"
    with Reservations() as starting:
        assert starting.take(name)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    with child, Reservations() as other:
        assert other.take(name)
        child.communicate()


def test_failed_reservation_is_an_error_and_is_closed() -> None:
    before = open_descriptors()
    with Reservations() as ours:
        with pytest.raises(OSError, match="too long"):
            ours.take("x" * 200)
        assert ours.descriptors == ()
    assert open_descriptors() == before


def test_reservation_is_an_abstract_socket_of_its_name() -> None:
    name = f"test-{uuid.uuid4()}"
    with Reservations() as ours, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        assert ours.take(name)
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(f"\0moorage/{name}")
        assert len(ours.descriptors) == 1
        ours.close()
        assert not ours.descriptors
        other.bind(f"\0moorage/{name}")

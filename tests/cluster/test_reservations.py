"""Reservations: taken once on a machine, released by the last process that holds them."""

from __future__ import annotations

import subprocess
import uuid

from moorage.cluster.reservations import Reservations


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

"""Events of nftables: rules that are there, and transactions of other processes."""

from __future__ import annotations

import sys

import pytest

from tests.network.kernel import namespace, skip_without_nftables

pytestmark = pytest.mark.root

# Prints what is seen of its own transaction, of another's, and the rules before and after.
WATCH = """
import select, subprocess
from moorage.linux.nftables import Nftables
from moorage.linux.nftables_events import NftablesEvents
kernel, events = Nftables(), NftablesEvents()
def seen():
    return bool(select.select([events], [], [], 5)[0]) and events.read()
kernel.run("add table ip t; add chain ip t c; add rule ip t c accept; add rule ip t c drop")
print(seen(), len(kernel.rules("ip", "t", ["c"])), kernel.rules("ip", "t", ["d"]))
subprocess.run(["nft", "add", "table", "ip", "other"], check=True)
print(seen(), len(kernel.rules("ip", "t", ["c"])))
subprocess.run(["nft", "flush", "ruleset"], check=True)
print(seen(), kernel.rules("ip", "t", ["c"]))
"""


def test_transactions_of_others_are_seen_and_what_they_remove() -> None:
    skip_without_nftables()
    with namespace() as place:
        lines = place.run(sys.executable, "-c", WATCH).splitlines()
    assert lines == ["False 2 ()", "True 2", "True ()"]

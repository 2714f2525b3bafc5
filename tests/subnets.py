"""Pod networks for engines of tests, and what their bridges are named by."""

from __future__ import annotations

import random
import secrets
import subprocess
from ipaddress import IPv4Network

_SET_APART = IPv4Network("198.18.0.0/15")
"""The network for measurements, so no cluster's. Source: RFC 2544."""
_random = random.SystemRandom()

ENGINE_PREFIX = "eeee"
"""Begins what stands in for the cluster's id in names of a test's engine."""


def engine_mark() -> str:
    """Return what stands in for a cluster's id: eight hex digits."""
    return ENGINE_PREFIX + secrets.token_hex(2)


def free_subnet() -> IPv4Network:
    """Return a /24 that no cluster takes and no bridge has: runs of tests are beside each other."""
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    subnets = list(_SET_APART.subnets(new_prefix=24))
    while True:
        subnet = _random.choice(subnets)
        if f"{subnet} " not in routes:
            return subnet

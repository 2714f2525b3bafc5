"""Where the time of a request goes: `.venv/bin/python -m bench.profiling [POST|GET|LIST] …`.

Loads an API server of our own with wrk on 32 connections, as `bench/api.py` does, samples its
threads from outside with py-spy (`.venv/bin/pip install py-spy`), and prints the share of each
stage of the event loop's thread, of each function, and of the store's writer thread. A sample
belongs to the innermost frame that a stage names. `--collapsed FILE` keeps the stacks.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from bench.api import CLASS, GET, LISTED, NAMESPACE, POST_POD, Server, prepare
from bench.own_api import administrator, process
from moorage.cluster.layout import Layout

_STAGES = (
    ("TLS, sockets, event loop", r"run_until_complete|asyncio/|sslproto|uvloop"),
    ("HTTP: parsing, connection", r"aiohttp/|multidict|yarl|moorage/wire/serving/"),
    ("answer: head, body, write", r"apiserver/(replies|list_body|representations|protobuf_list)"),
    ("handler, routing, negotiation",
     r"apiserver/(handler|heads|routing|call|negotiation|resources|options|flow_control|seating)"),
    ("authentication, authorization", r"apiserver/auth|registry/rbac/|impersonation"),
    ("body: decode, check, normalise", r"apiserver/(decoding|bodies)|registry/(codec|schema/)"),
    ("defaults", r"registry/(defaults|kinds/[^:]*defaults)"),
    ("field ownership", r"registry/(ownership|patch/)"),
    ("admission", r"moorage/(admission|runtimeclass|quota)/|apiserver/readers|registry/typed"),
    ("validation, warnings", r"registry/(validation|warnings|kinds/[^:]*(validation|warnings))"),
    ("registry: the path of a write",
     r"registry/(objects|worker|kinds|request|listing|selection|preparation|uids)"),
    ("encode, make the stored item", r"registry/stored"),
    ("store: queue and acknowledge", r"storage/sqlite|storage/database"),
    ("watch cache", r"storage/(cache|watcher)"),
)  # fmt: skip
_PATTERNS = [(name, re.compile(pattern)) for name, pattern in _STAGES]
_REQUESTS = {
    "POST": lambda: POST_POD.format(run="profile", cls=CLASS, ns=NAMESPACE),
    "GET": lambda: GET.format(path=f"/apis/node.k8s.io/v1/runtimeclasses/{CLASS}"),
    "LIST": lambda: GET.format(path=f"/api/v1/namespaces/{LISTED}/pods"),
}


def sampled(pid: int, seconds: int) -> str:
    """The stacks that py-spy saw: `frame;frame;… count` a line, outermost first."""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:/usr/bin")
    if program is None:
        raise SystemExit("py-spy is missing: .venv/bin/pip install py-spy")
    with tempfile.NamedTemporaryFile() as output:
        subprocess.run(
            [program, "record", "--threads", "--full-filenames", "--rate", "400", "--duration",
             str(seconds), "--format", "raw", "--output", output.name, "--pid", str(pid)],
            check=True, capture_output=True,
        )  # fmt: skip
        return Path(output.name).read_text()


def stage_of(stack: list[str]) -> str:
    for frame in reversed(stack):
        for name, pattern in _PATTERNS:
            if pattern.search(frame):
                return name
    return "other"


def report(what: str, stacks: str, rate: float) -> None:
    """Print the shares of the threads, and of the stages and functions of the loop's thread."""
    threads: collections.Counter[str] = collections.Counter()
    stages: collections.Counter[str] = collections.Counter()
    functions: collections.Counter[str] = collections.Counter()
    for line in stacks.splitlines():
        text, _, count = line.rpartition(" ")
        thread, *stack = text.split(";")
        threads[re.sub(r"^thread \(\w+\): ", "", thread)] += int(count)
        if "MainThread" not in thread:
            continue
        stages[stage_of(stack)] += int(count)
        functions[re.sub(r"^(\S+) \(.*?([^/]+/[^/]+):\d+\)$", r"\2 \1", stack[-1])] += int(count)
    print(f"\n{what}: {rate:,.0f}/s with the profiler")
    for title, counter, most in (
        ("threads", threads, 4), ("stages of the event loop's thread", stages, 20),
        ("functions of the event loop's thread", functions, 25),
    ):  # fmt: skip
        total = counter.total() or 1
        print(f"  {title}")
        for name, count in counter.most_common(most):
            print(f"    {100 * count / total:5.1f} %  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("requests", nargs="*", metavar="|".join(_REQUESTS))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--collapsed", type=Path)
    options = parser.parse_args()
    if unknown := set(options.requests) - set(_REQUESTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    for what in options.requests or _REQUESTS:
        with tempfile.TemporaryDirectory() as scratch, process(Path(scratch)) as running:
            server = Server(*asyncio.run(administrator(Layout(Path(scratch)))))
            prepare(server)
            rates: list[float] = []
            script, connections = _REQUESTS[what](), options.connections

            def load(
                server: Server = server, script: str = script, connections: int = connections,
                rates: list[float] = rates,
            ) -> None:  # fmt: skip
                rates.append(server.load(script, connections, options.seconds + 2))

            loading = threading.Thread(target=load)
            loading.start()
            stacks = sampled(running.pid, options.seconds)
            loading.join()
            if options.collapsed:
                options.collapsed.with_suffix(f".{what}").write_text(stacks)
            report(what, stacks, rates[0])


if __name__ == "__main__":
    main()

"""Reviews of a webhook at a steady rate: `.venv/bin/python -m bench.attach_reviews [--rate N]`.

One webhook that knows 5,000 nodes and 50,000 profiles (`bench.generated_api`) answers
AdmissionReviews of new pods over TLS on kept connections, as kube-apiserver sends them: half of the
pods name a class, a quarter states needs, a quarter neither. Requests leave at their time whether
or not earlier ones are answered, so that waiting counts. Prints the times from a request's due time
to its answer, the generator's own delay, and the webhook's processor time for each review. The
goals at 200 a second: p50 3 ms, p99 15 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from bench import generated_objects as made
from bench.attach_size import Api, webhook
from bench.large_store import cpu_s
from moorage.api.runtime_group import NEEDS_ANNOTATION

_CONNECTIONS = 16
_WARM_UP = 100


def bodies() -> list[bytes]:
    """Return requests to /mutate, complete with their heads."""
    return [_request(_review(number)) for number in range(64)]


def _review(number: int) -> dict[str, Any]:
    pod = made.pod(number, 1)
    metadata = {"namespace": "default", "generateName": "pod-", "labels": pod["metadata"]["labels"]}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    if number % 2:
        del spec["runtimeClassName"]
    if number % 4 == 1:
        metadata["annotations"] = {NEEDS_ANNOTATION: "exec"}
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    pods = {"group": "", "version": "v1", "resource": "pods"}
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": f"00000000-0000-0000-0000-{number:012}", "kind": kind, "requestKind": kind,
        "resource": pods, "requestResource": pods, "namespace": "default", "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller",
                     "groups": ["system:serviceaccounts", "system:authenticated"]},
        "object": obj, "oldObject": None, "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }  # fmt: skip
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _request(review: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(review)
    head = (
        "POST /mutate?timeout=5s HTTP/1.1\r\nHost: moorage-webhook.moorage-system.svc\r\n"
        f"Accept: application/json\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> bytes:
    """Send a request and return the answer's body. Raises SystemExit for another status."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(
        int(line.partition(":")[2])
        for line in head.split("\r\n")
        if line.startswith("content-length:")
    )
    body = await reader.readexactly(length)
    if " 200 " not in head.partition("\r\n")[0]:
        raise SystemExit(f"the webhook answers {head}{body.decode()}")
    return body


async def load(port: int, rate: int, count: int) -> tuple[list[float], list[float]]:
    """Send reviews. Return the seconds of each from when it was due, and the sending's delay."""
    tls = ssl._create_unverified_context()
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(_CONNECTIONS):
        free.put_nowait(await asyncio.open_connection("127.0.0.1", port, ssl=tls))
    requests, taken, late = bodies(), [0.0] * count, [0.0] * count

    async def one(number: int, due_s: float) -> None:
        late[number] = time.perf_counter() - due_s
        connection = await free.get()
        body = await _exchange(*connection, requests[number % len(requests)])
        taken[number] = time.perf_counter() - due_s
        free.put_nowait(connection)
        if not msgspec.json.decode(body)["response"]["allowed"]:
            raise SystemExit(f"the webhook refuses a pod: {body.decode()}")

    async with asyncio.TaskGroup() as tasks:
        began_s = time.perf_counter()
        for number in range(count):
            due_s = began_s + number / rate
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            tasks.create_task(one(number, due_s))
    return taken, late


def _quantiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return ", ".join(
        f"p{part:g} {ordered[int(len(ordered) * part / 100)] * 1000:.2f} ms"
        for part in (50, 90, 99, 99.9)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--rate", type=int, default=200, help="reviews a second")
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attach-reviews-") as directory:
        scratch = Path(directory)
        api = Api(scratch, options.nodes, 0)
        with api.process(), webhook(api, scratch) as (running, port):
            asyncio.run(load(port, options.rate, _WARM_UP))
            before_s, count = cpu_s(running.pid), options.rate * options.seconds
            taken, late = asyncio.run(load(port, options.rate, count))
            spent_ms = (cpu_s(running.pid) - before_s) * 1000 / count
            print(f"reviews at {options.rate}/s     {_quantiles(taken)}")
            print(f"of that the sender   {_quantiles(late)}")
            print(f"processor time       {spent_ms:.2f} ms a review")


if __name__ == "__main__":
    main()

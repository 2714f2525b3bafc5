"""Workloads of `moor bench classes`: shell programs for a busybox, and what they print.

Each is repeated with four times as much work until it takes half a second by the container's own
`/proc/uptime`, whose ticks are hundredths. A line `sample NAME COUNT TICKS` is a result, a line
`failed NAME WHY` says what the class broke.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

IMAGE = "moorage.local/busybox:1"
"""The image that comes with Moorage."""

PORT = 8080

START, DENSITY, MEMORY, OVERHEAD = "start", "density", "memory", "overhead"
SYSCALLS, FILES, WRITE, NETWORK = "syscalls", "files", "write", "network"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is measured: its unit, whether more is better, and a sentence on how."""

    name: str
    unit: str
    is_more_better: bool
    how: str


METRICS = (
    Metric(START, "ms", False, "from the request to the container running, by this client"),
    Metric(SYSCALLS, "1/s", True, "reads and writes of one byte by dd"),
    Metric(FILES, "1/s", True, "files created and removed in the container's root"),
    Metric(WRITE, "MiB/s", True, "blocks of 64 KiB written to the container's root and synced"),
    Metric(NETWORK, "MiB/s", True, "download from another pod by wget"),
    Metric(DENSITY, "pods/s", True, "pods started at once, by the time until the last runs"),
    Metric(MEMORY, "MiB", False, "working set of an idle pod"),
    Metric(OVERHEAD, "MiB", False, "what it is more than under the class that uses least"),
)

# Work for one count, in the metric's unit.
_PER_COUNT = {SYSCALLS: 2.0, FILES: 2.0, WRITE: 1 / 16, NETWORK: 4.0}
_LEAST_TICKS = 1
_LONGEST_WHY = 200

_COMMON = """\
ticks() { read up _ < /proc/uptime; echo $(( ${up%.*} * 100 + 1${up#*.} - 100 )); }
measure() {
  name=$1; count=$2; most=$3
  while :; do
    begin=$(ticks)
    if ! why=$(work_$name $count 2>&1); then
      echo "failed $name $(echo "$why" | tail -n 1)"; return
    fi
    spent=$(( $(ticks) - begin ))
    if [ $spent -ge 50 ] || [ $count -ge $most ]; then break; fi
    count=$(( count * 4 ))
  done
  echo "sample $name $count $spent"
}
work_syscalls() { dd if=/dev/zero of=/dev/null bs=1 count=$1; }
work_files() {
  mkdir /tmp/files || return 1
  i=0
  while [ $i -lt $1 ]; do : > /tmp/files/$i || return 1; i=$(( i + 1 )); done
  rm -r /tmp/files
}
work_write() { dd if=/dev/zero of=/tmp/written bs=64k count=$1 conv=fsync && rm /tmp/written; }
work_network() {
  i=0
  while [ $i -lt $1 ]; do
    timeout 20 wget -q -O /dev/null http://$SERVER:8080/data || { echo "wget failed"; return 1; }
    i=$(( i + 1 ))
  done
}
"""


def throughput_script(server: str) -> str:
    """Return the program that measures throughput; `server` is the address of the server pod, or
    empty to leave the network out.
    """
    steps = ["measure syscalls 2000 8192000", "measure files 50 51200", "measure write 16 4096"]
    if server:
        steps.append("measure network 1 64")
    return f"SERVER={server}\n{_COMMON}" + "\n".join(steps) + "\n"


SERVER_SCRIPT = f"""\
mkdir /tmp/www && dd if=/dev/zero of=/tmp/www/data bs=1M count=4 2>/dev/null &&
exec httpd -f -p {PORT} -h /tmp/www
"""

IDLE_SCRIPT = "exec sleep 3600"


@dataclass(frozen=True, slots=True)
class Reading:
    """A line that a workload printed: a value in the metric's unit, or why it failed."""

    metric: str
    value: float | None
    why: str = ""


def readings(output: str) -> Iterator[Reading]:
    """Yield the results of a throughput program; lines of any other form are skipped."""
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        name, _, values = rest.partition(" ")
        if name not in _PER_COUNT:
            continue
        if kind == "failed":
            yield Reading(name, None, values.strip()[:_LONGEST_WHY] or "failed")
        elif kind == "sample":
            value = _value(name, values)
            if value is not None:
                yield Reading(name, value)


def _value(name: str, values: str) -> float | None:
    count, _, ticks = values.partition(" ")
    if not (_is_number(count) and _is_number(ticks)):
        return None
    seconds = max(int(ticks), _LEAST_TICKS) / 100
    return round(int(count) * _PER_COUNT[name] / seconds, 3)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12

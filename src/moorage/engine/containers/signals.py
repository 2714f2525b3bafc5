"""Which signal stops a container: its own wish, else its image's, else SIGTERM.

Source: CRI `ContainerConfig.stop_signal` (KEP-4960), OCI image-spec `StopSignal`.
"""

from __future__ import annotations

import signal

from moorage.api.logs import Log
from moorage.cri import pb

log = Log(__name__)

_PREFIX = "SIG"
_REALTIME = {"RTMIN": signal.SIGRTMIN, "RTMAX": signal.SIGRTMAX}


def stop_signal(wanted: pb.Signal.ValueType, image_signal: str) -> signal.Signals | int:
    """The number. An image's word that is no signal is passed over, as other engines do."""
    if wanted:
        found = signal_number(pb.Signal.Name(wanted))
        if found is not None:
            return found
    if image_signal:
        found = signal_number(image_signal)
        if found is not None:
            return found
        log.warning("an image names a stop signal that there is none of", signal=image_signal)
    return signal.SIGTERM


def signal_number(text: str) -> int | None:
    """The number of `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3` or `RTMINPLUS3`; None for no signal."""
    name = text.strip().upper().replace("PLUS", "+").replace("MINUS", "-").removeprefix(_PREFIX)
    if name.isdecimal():
        return int(name) if 0 < int(name) < signal.NSIG else None
    base, plus, offset = name.replace("-", "+-").partition("+")
    if base in _REALTIME:
        if plus and not offset.removeprefix("-").isdecimal():
            return None
        number = int(_REALTIME[base]) + (int(offset) if plus else 0)
        return number if signal.SIGRTMIN <= number <= signal.SIGRTMAX else None
    member = getattr(signal, f"{_PREFIX}{base}", None)
    return int(member) if isinstance(member, signal.Signals) and not plus else None


def spoken_signal(number: int) -> str:
    """The CRI's name of a signal's number, empty when it has none."""
    for name, _ in pb.Signal.items():
        if name != "RUNTIME_DEFAULT" and signal_number(name) == number:
            return str(name)
    return ""

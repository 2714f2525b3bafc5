"""Stop signals: the container's STOPSIGNAL, else its image's, else SIGTERM.

Source: CRI `ContainerConfig.stop_signal` (KEP-4960), OCI image-spec `StopSignal`.
"""

from __future__ import annotations

import signal

from moorage.api.logs import Log
from moorage.wire.cri import pb

log = Log(__name__)

_PREFIX = "SIG"
_REALTIME = {"RTMIN": signal.SIGRTMIN, "RTMAX": signal.SIGRTMAX}


def stop_signal(requested: pb.Signal.ValueType, image_signal: str) -> signal.Signals | int:
    """Return the signal's number. An unknown signal of an image is ignored, as other engines do."""
    if requested:
        number = signal_number(pb.Signal.Name(requested))
        if number is not None:
            return number
    if image_signal:
        number = signal_number(image_signal)
        if number is not None:
            return number
        log.warning("image has an unknown stop signal, using SIGTERM", signal=image_signal)
    return signal.SIGTERM


def signal_number(text: str) -> int | None:
    """Return the number of `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3` or `RTMINPLUS3`, else None."""
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


def cri_signal_name(number: int) -> str:
    """Return the CRI's name of a signal, empty when it has none."""
    for name, _ in pb.Signal.items():
        if name != "RUNTIME_DEFAULT" and signal_number(name) == number:
            return str(name)
    return ""

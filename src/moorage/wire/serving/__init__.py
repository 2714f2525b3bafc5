"""HTTP serving: connection limits, deadlines and budgets.

    listener ──▶ Acceptor ──admit──▶ ConnectionTable ──▶ HttpConnection ──▶ the server's handler
                                       │ limits per address, reserve for local peers
                                       └ closes connections without a request in time

The API server, the node agent's endpoint and the engine's stream endpoint listen through it.
"""

from moorage.wire.serving.acceptor import Acceptor
from moorage.wire.serving.budget import Budget
from moorage.wire.serving.connection import (
    AtOnce,
    HttpConnection,
    is_proven,
    peer_certificate,
    prove,
)
from moorage.wire.serving.limits import Limits
from moorage.wire.serving.served_certificate import ServedCertificate
from moorage.wire.serving.tls import server_context

__all__ = [
    "Acceptor",
    "AtOnce",
    "Budget",
    "HttpConnection",
    "Limits",
    "ServedCertificate",
    "is_proven",
    "peer_certificate",
    "prove",
    "server_context",
]

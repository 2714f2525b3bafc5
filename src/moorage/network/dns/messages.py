"""Messages: a query in, the zone's answer out. Pure, on bytes.

dnslib parses and writes them. Source: RFC 1035, RFC 6891 (EDNS), RFC 2308 (negative answers).
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import dnslib
from dnslib import DNSRecord

from moorage.network.dns.zone import TTL_S, Answer, Name, Record, Zone

HEADER_BYTES: Final = 12
PLAIN_BYTES: Final = 512
EDNS_BYTES: Final = 1232
"""The largest reply by UDP that is not fragmented on usual links. Source: DNS flag day 2020."""
MAX_BYTES: Final = 65535

FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 1, 2, 3, 4, 5, 16
_REFRESH_S, _RETRY_S, _EXPIRE_S = 7200, 1800, 86400
_TRANSFERS: Final = (251, 252)
_INTERNET: Final = 1
_OPT: Final = dnslib.QTYPE.OPT
_DO: Final = 0x8000
_MAX_ALIASES: Final = 8
_MAX_RECORDS: Final = 8
"""A question, EDNS and a signature, and some to be refused with a reason."""
_MIN_RECORD_BYTES: Final = 12
"""A record whose name is a pointer, without its data."""
_ORDERS: Final = 4
"""Different orders of several addresses that are kept of an answer."""


class UnreadableError(Exception):
    """The bytes are no query; there is no one to answer."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query. `room` is the longest reply, in bytes, that the client takes."""

    message: DNSRecord
    name: Name
    type: str
    room: int
    has_edns: bool

    @property
    def id(self) -> int:
        return int(self.message.header.id)


def parse_query(data: bytes, *, by_tcp: bool = False) -> Query:
    """Parse a query. Raises UnreadableError."""
    if len(data) < HEADER_BYTES or data[2] & 0x80:
        raise UnreadableError("no query")
    # Before anything is parsed: ten thousand records in a query would take a second.
    if sum(struct.unpack_from("!4H", data, 4)) > _MAX_RECORDS:
        raise UnreadableError("more records than any query has")
    try:
        message = DNSRecord.parse(data)
    except (dnslib.DNSError, ValueError, IndexError, RecursionError) as error:
        raise UnreadableError(str(error)) from error
    options = [one for one in message.ar if one.rtype == _OPT]
    room = PLAIN_BYTES
    if options:
        room = max(PLAIN_BYTES, min(int(options[0].rclass), EDNS_BYTES))
    name = tuple(_text(label) for label in message.q.qname.label) if message.questions else ()
    kind = (
        str(dnslib.QTYPE.forward.get(message.q.qtype, message.q.qtype)) if message.questions else ""
    )
    return Query(message, name, kind, MAX_BYTES if by_tcp else room, bool(options))


def refusal_of(query: Query) -> int:
    """Return the code that refuses a query that no server would answer, 0 for any other."""
    header, message = query.message.header, query.message
    options = [one for one in message.ar if one.rtype == _OPT]
    if header.opcode != 0:
        return NOTIMP
    if len(message.questions) != 1 or len(options) > 1 or message.rr or message.auth:
        return FORMERR
    if options and options[0].edns_ver != 0:
        return BADVERS
    if message.q.qclass != _INTERNET or message.q.qtype in _TRANSFERS:
        return REFUSED
    return 0


def error_reply(query: Query, code: int) -> bytes:
    """Return a reply without records."""
    reply = _reply(query)
    reply.header.rcode = code & 0xF
    if query.has_edns:
        reply.add_ar(_edns(query, code >> 4))
    return bytes(reply.pack())


def question(name: Name, kind: str) -> bytes:
    """Return a query of our own."""
    query = DNSRecord(q=dnslib.DNSQuestion(_label(name), getattr(dnslib.QTYPE, kind)))
    return bytes(query.pack())


def alias_records(reply: bytes, name: Name) -> list[dnslib.RR]:
    """Return the records of a name and of its aliases in a reply, and no others.

    A server outside could put names of the cluster there. Raises UnreadableError.
    """
    try:
        records = list(DNSRecord.parse(reply).rr)
    except (dnslib.DNSError, ValueError, IndexError, RecursionError) as error:
        raise UnreadableError(str(error)) from error
    names, found = {name}, []
    for record in records:
        if tuple(map(_text, record.rname.label)) in names:
            found.append(record)
            if record.rtype == dnslib.QTYPE.CNAME:
                names.add(tuple(map(_text, record.rdata.label.label)))
    return found


@dataclass(frozen=True, slots=True)
class Resolved:
    """Records of a name, with those of its aliases; `outside` is an alias that is not ours."""

    answer: Answer
    outside: Name | None = None


def resolve(zone: Zone, name: Name, kind: str) -> Resolved:
    """Return the answer for a name that is the zone's, following aliases within the zone."""
    records: list[Record] = []
    followed = {name}
    answer = zone.answer(name, kind)
    for _ in range(_MAX_ALIASES):
        records += answer.records
        if answer.alias is None:
            break
        if not zone.is_ours(answer.alias):
            return Resolved(Answer(tuple(records)), answer.alias)
        if answer.alias in followed:
            return Resolved(Answer(tuple(records), is_empty=True))
        followed.add(answer.alias)
        answer = zone.answer(answer.alias, kind)
    exists, is_empty = answer.exists, not answer.records
    return Resolved(Answer(tuple(records), answer.additional, exists=exists, is_empty=is_empty))


def replies(
    query: Query, zone: Zone, answer: Answer, serial: int, more: Iterable[dnslib.RR] = ()
) -> list[bytes]:
    """Return the reply in some orders of its addresses, so that clients share them evenly.

    `more` are records of an alias elsewhere. A reply that is too long has what fits, and says so.
    """
    records = list(answer.records)
    orders = [records]
    if len(records) > 1 and records[0].type != "CNAME":
        # A headless Service may have thousands: no more are written than could fit, and one that
        # shows that there are others.
        most = query.room // _MIN_RECORD_BYTES + 1
        mixed = random.sample(records, min(len(records), most))
        orders = [mixed[at:] + mixed[:at] for at in range(min(len(mixed), _ORDERS))]
    return [_encoded(query, zone, answer, order, serial, more) for order in orders]


def _encoded(
    query: Query,
    zone: Zone,
    answer: Answer,
    records: list[Record],
    serial: int,
    more: Iterable[dnslib.RR],
) -> bytes:
    reply = _reply(query)
    reply.header.aa = 1
    # Names are written as they were asked for: clients compare the bits of case.
    asked = query.message.q.qname
    for record in records:
        if record.type == "SOA":
            reply.add_answer(_authority(zone, serial))
            continue
        reply.add_answer(_resource_record(record, asked if record.name == query.name else None))
    for record in more:
        reply.add_answer(record)
    for record in answer.additional[: query.room // _MIN_RECORD_BYTES]:
        reply.add_ar(_resource_record(record, None))
    if not records or answer.is_empty or not answer.exists:
        reply.header.rcode = 0 if answer.exists else NXDOMAIN
        reply.add_auth(_authority(zone, serial))
    if query.has_edns:
        reply.add_ar(_edns(query))
    return _fitted(reply, query.room)


def _fitted(reply: DNSRecord, room: int) -> bytes:
    """Return a reply in at most `room` bytes.

    Additional records go first, silently. Of the answers as many are left as fit, for resolvers
    that do not ask again by TCP. Source: RFC 2181, section 9.
    """
    answers, most = reply.rr, room // _MIN_RECORD_BYTES

    def packed(count: int) -> bytes:
        reply.rr = answers[:count]
        return bytes(reply.pack())

    if len(answers) <= most and len(whole := packed(most)) <= room:
        return whole
    reply.ar = [one for one in reply.ar if one.rtype == _OPT]
    if len(answers) <= most and len(whole := packed(most)) <= room:
        return whole
    reply.header.tc = 1
    too_many = bisect_right(range(min(len(answers), most) + 1), room, key=lambda n: len(packed(n)))
    return packed(max(0, too_many - 1))


def _edns(query: Query, code: int = 0) -> dnslib.RR:
    # Whether the client wants signatures comes back. Source: RFC 3225, section 3.
    wants_signatures = any(one.ttl & _DO for one in query.message.ar if one.rtype == _OPT)
    flags = "do" if wants_signatures else ""
    return dnslib.EDNS0(udp_len=EDNS_BYTES, ext_rcode=code, flags=flags)


def _reply(query: Query) -> DNSRecord:
    header = query.message.header
    reply = DNSRecord(
        dnslib.DNSHeader(id=header.id, bitmap=header.bitmap, qr=1, aa=0, ra=1, rcode=0),
        questions=list(query.message.questions[:1]),
    )
    reply.header.tc, reply.header.z, reply.header.ad, reply.header.cd = 0, 0, 0, header.cd
    return reply


def _resource_record(record: Record, asked: dnslib.DNSLabel | None) -> dnslib.RR:
    name = asked if asked is not None else _label(record.name)
    data = _DATA[record.type](record.data)
    return dnslib.RR(name, getattr(dnslib.QTYPE, record.type), ttl=TTL_S, rdata=data)


_DATA: Final[Mapping[str, Callable[[Any], dnslib.RD]]] = {
    "A": dnslib.A,
    "AAAA": dnslib.AAAA,
    "TXT": dnslib.TXT,
    "CNAME": lambda target: dnslib.CNAME(_label(target)),
    "NS": lambda target: dnslib.NS(_label(target)),
    "PTR": lambda target: dnslib.PTR(_label(target)),
    "SRV": lambda place: dnslib.SRV(0, 100, place[0], _label(place[1])),
}


def _authority(zone: Zone, serial: int) -> dnslib.RR:
    times = (serial, _REFRESH_S, _RETRY_S, _EXPIRE_S, TTL_S)
    server, contact = _label(("ns", "dns", *zone.name)), _label(("hostmaster", *zone.name))
    return dnslib.RR(
        _label(zone.name), dnslib.QTYPE.SOA, ttl=TTL_S, rdata=dnslib.SOA(server, contact, times)
    )


def _label(name: Name) -> dnslib.DNSLabel:
    return dnslib.DNSLabel([label.encode("latin-1") for label in name])


def _text(label: bytes) -> str:
    return label.decode("latin-1").lower()

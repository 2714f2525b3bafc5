"""DNS server: real sockets on loopback, a name server outside that a test answers for."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import dnslib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.clock import SystemClock
from moorage.network.dns.forwarding import Forwarder, is_reply_to, lifetimes
from moorage.network.dns.messages import UnreadableError, parse_query, question, replies, resolve
from moorage.network.dns.records import EndpointRecord, PortRecord, ServiceRecord
from moorage.network.dns.server import DnsServer
from moorage.network.dns.zone import Zone

WEB = "web.default.svc.cluster.local"
Answering = Callable[[dnslib.DNSRecord], list[dnslib.DNSRecord]]


class Client:
    """Asks a server by UDP and TCP."""

    def __init__(self, ports: tuple[int, int], server: DnsServer, zone: Zone) -> None:
        self.port, self.tcp_port = ports
        self.server = server
        self.zone = zone

    async def send(self, data: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.setblocking(False)
            connection.connect(("127.0.0.1", self.port))
            await loop.sock_sendall(connection, data)
            async with asyncio.timeout(20):
                return await loop.sock_recv(connection, 65535)

    async def ask(self, name: str, kind: str = "A", **edns: int) -> dnslib.DNSRecord:
        query = dnslib.DNSRecord.question(name, kind)
        if edns:
            query.add_ar(dnslib.EDNS0(**edns))
        reply = dnslib.DNSRecord.parse(await self.send(query.pack()))
        assert (reply.header.id, reply.header.qr) == (query.header.id, 1)
        return reply

    async def ask_by_tcp(self, *names: str) -> list[dnslib.DNSRecord]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.tcp_port)
        replies = []
        for name in names:
            query = dnslib.DNSRecord.question(name).pack()
            writer.write(struct.pack("!H", len(query)) + query)
            async with asyncio.timeout(20):
                (size,) = struct.unpack("!H", await reader.readexactly(2))
                replies.append(dnslib.DNSRecord.parse(await reader.readexactly(size)))
        writer.close()
        return replies


class Outside(asyncio.DatagramProtocol):
    """A name server; `answer` gives the replies that it sends, `asked` counts."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self.asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def send(self, data: bytes) -> None:
        """Send to the last one that asked."""
        self._transport.sendto(data, self._client)  # type: ignore[attr-defined]

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        self.asked += 1
        self._client = address
        for reply in self._answer(dnslib.DNSRecord.parse(data)):
            self._transport.sendto(reply.pack(), address)  # type: ignore[attr-defined]


@asynccontextmanager
async def serving(answer: Answering | None = None) -> AsyncIterator[tuple[Client, Outside]]:
    loop = asyncio.get_running_loop()
    outside = Outside(answer or (lambda _: []))
    transport, _ = await loop.create_datagram_endpoint(lambda: outside, ("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    zone = Zone("cluster.local", "10.96.0.10")
    zone.set_namespace("default", is_there=True)
    zone.set_service("default/web", ServiceRecord(("10.96.0.7",)))
    zone.set_service("default/ext", ServiceRecord(external_name="example.org"))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener,
    ):
        datagrams.setblocking(False)
        datagrams.bind(("127.0.0.1", 0))
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = DnsServer(zone, Forwarder([f"127.0.0.1#{port}"]), SystemClock())
        server.is_ready = True
        running = asyncio.ensure_future(server.run(datagrams, listener))
        try:
            ports = datagrams.getsockname()[1], listener.getsockname()[1]
            yield Client(ports, server, zone), outside
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            transport.close()


def answering(*texts: str) -> Answering:
    def answer(query: dnslib.DNSRecord) -> list[dnslib.DNSRecord]:
        reply = query.reply()
        for text in texts:
            reply.add_answer(*dnslib.RR.fromZone(text))
        return [reply]

    return answer


def addresses(reply: dnslib.DNSRecord) -> list[str]:
    return sorted(str(record.rdata) for record in reply.rr)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition was never met")


async def test_names_of_the_cluster_are_answered_by_udp_and_tcp() -> None:
    async with serving() as (client, _):
        reply = await client.ask(WEB)
        assert (addresses(reply), reply.rr[0].ttl, reply.header.aa) == (["10.96.0.7"], 30, 1)
        assert [addresses(one) for one in await client.ask_by_tcp(WEB, WEB)] == [["10.96.0.7"]] * 2
        missing = await client.ask(f"x{WEB}")
        assert (missing.header.rcode, missing.auth[0].rtype) == (3, dnslib.QTYPE.SOA)
        # The bits of case come back, as resolvers check that send them at random.
        assert str((await client.ask(WEB.upper())).q.qname) == f"{WEB.upper()}."


async def test_a_change_is_answered_at_once() -> None:
    async with serving() as (client, _):
        await client.ask(WEB)
        client.zone.set_service("default/web", ServiceRecord(("10.96.0.8",)))
        client.server.zone_changed()
        assert addresses(await client.ask(WEB)) == ["10.96.0.8"]


async def test_before_the_zone_is_complete_nothing_is_denied() -> None:
    async with serving() as (client, _):
        client.server.is_ready = False
        assert (await client.ask(f"x{WEB}")).header.rcode == 2


async def test_clients_share_addresses_evenly() -> None:
    async with serving() as (client, _):
        many = tuple(f"10.96.1.{number}" for number in range(4))
        client.zone.set_service("default/web", ServiceRecord(many))
        firsts = set()
        for _ in range(60):
            # Each time another ID, so that all but the first reply are kept ones.
            firsts.add(str((await client.ask(WEB)).rr[0].rdata))
        assert len(firsts) > 1


async def test_a_reply_that_does_not_fit_is_truncated_and_whole_by_tcp() -> None:
    async with serving() as (client, _):
        many = tuple(f"10.96.1.{number}" for number in range(60))
        client.zone.set_service("default/web", ServiceRecord(many))
        # As many as fit, for resolvers that do not ask by TCP.
        plain = await client.ask(WEB)
        assert (plain.header.tc, plain.header.aa, len(plain.rr)) == (1, 1, 29)
        assert len((await client.ask(WEB, udp_len=4096)).rr) == 60
        (whole,) = await client.ask_by_tcp(WEB)
        assert len(whole.rr) == 60


async def test_additional_records_make_way_for_answers() -> None:
    async with serving() as (client, _):
        ports = (PortRecord("sql", "tcp", 5432),)
        ends = tuple(EndpointRecord(f"10.244.0.{number}", "", ports) for number in range(7))
        client.zone.set_service("default/db", ServiceRecord(endpoints=ends))
        reply = await client.ask("db.default.svc.cluster.local", "SRV")
        assert (reply.header.tc, len(reply.rr), reply.ar) == (0, 7, [])
        roomy = await client.ask("db.default.svc.cluster.local", "SRV", udp_len=1232)
        assert (len(roomy.rr), len(roomy.ar)) == (7, 8)


@given(st.integers(0, 200), st.sampled_from(["A", "SRV"]), st.integers(0, 1500))
def test_a_reply_is_never_longer_than_the_client_takes(count: int, kind: str, room: int) -> None:
    zone = Zone("cluster.local", "10.96.0.10")
    zone.set_namespace("default", is_there=True)
    ports = (PortRecord("sql", "tcp", 5432),)
    ends = tuple(EndpointRecord(f"10.244.0.{number}", "", ports) for number in range(count))
    zone.set_service("default/db", ServiceRecord(endpoints=ends))
    asked = dnslib.DNSRecord.question("db.default.svc.cluster.local", kind)
    asked.add_ar(dnslib.EDNS0(udp_len=room))
    query = parse_query(asked.pack())
    for reply in replies(query, zone, resolve(zone, query.name, kind).answer, 1):
        assert len(reply) <= query.room
        answers = dnslib.DNSRecord.parse(reply)
        assert len(answers.rr) == count or (answers.header.tc and len(answers.rr) > 5)


@pytest.mark.parametrize("target", ["web", "loop", "there", "nope"])
async def test_an_alias_without_the_records_asked_for_may_be_kept(target: str) -> None:
    """By the zone's SOA; an alias to itself is given once."""
    async with serving() as (client, _):
        for name, other in (
            ("alias", target),
            ("loop", "loop"),
            ("there", "back"),
            ("back", "there"),
        ):
            external = f"{other}.default.svc.cluster.local"
            client.zone.set_service(f"default/{name}", ServiceRecord(external_name=external))
        reply = await client.ask("alias.default.svc.cluster.local", "AAAA")
        assert [one.rtype for one in reply.auth] == [dnslib.QTYPE.SOA]
        assert len({str(one.rname) for one in reply.rr}) == len(reply.rr) > 0
        assert reply.header.rcode == (3 if target == "nope" else 0)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda query: setattr(query.header, "opcode", 5), 4),
        (lambda query: setattr(query.q, "qtype", 252), 5),
        (lambda query: setattr(query.q, "qclass", 3), 5),
        (lambda query: query.questions.append(query.q), 1),
        (lambda query: query.add_answer(*dnslib.RR.fromZone("a A 1.2.3.4")), 1),
    ],
)
async def test_what_is_refused(change: Callable[[dnslib.DNSRecord], None], code: int) -> None:
    async with serving() as (client, _):
        query = dnslib.DNSRecord.question(WEB)
        change(query)
        reply = dnslib.DNSRecord.parse(await client.send(query.pack()))
        assert (reply.header.rcode, reply.rr) == (code, [])


async def test_another_version_of_edns_is_refused() -> None:
    async with serving() as (client, _):
        reply = await client.ask(WEB, version=1)
        assert (reply.header.rcode, reply.ar[0].ttl >> 24) == (0, 1)


@pytest.mark.parametrize(("flags", "expected"), [("do", 0x8000), ("", 0)])
async def test_the_wish_for_signatures_comes_back(flags: str, expected: int) -> None:
    async with serving() as (client, _):
        query = dnslib.DNSRecord.question(WEB)
        query.add_ar(dnslib.EDNS0(flags=flags))
        reply = dnslib.DNSRecord.parse(await client.send(query.pack()))
        assert reply.ar[0].ttl & 0x8000 == expected


async def test_other_names_are_asked_for_outside_and_kept() -> None:
    async with serving(answering("example.org 60 A 192.0.2.1")) as (client, outside):
        for _ in range(3):
            reply = await client.ask("example.org")
            assert addresses(reply) == ["192.0.2.1"]
        assert outside.asked == 1


async def test_an_external_name_comes_with_its_addresses() -> None:
    async with serving(answering("example.org 60 A 192.0.2.1")) as (client, _):
        reply = await client.ask("ext.default.svc.cluster.local")
        assert addresses(reply) == ["192.0.2.1", "example.org."]


async def test_an_external_name_is_asked_for_again_after_a_change() -> None:
    name = "ext.default.svc.cluster.local"

    def answer(query: dnslib.DNSRecord) -> list[dnslib.DNSRecord]:
        return answering(f"{query.q.qname} 60 A 192.0.2.1")(query)

    async with serving(answer) as (client, outside):
        for _ in range(3):
            assert addresses(await client.ask(name)) == ["192.0.2.1", "example.org."]
        assert outside.asked == 1
        client.zone.set_service("default/ext", ServiceRecord(external_name="example.net"))
        client.server.zone_changed()
        assert addresses(await client.ask(name)) == ["192.0.2.1", "example.net."]


async def test_a_reply_that_a_change_overtakes_is_not_kept() -> None:
    name = "ext.default.svc.cluster.local"

    def answer(query: dnslib.DNSRecord) -> list[dnslib.DNSRecord]:
        if str(query.q.qname) == "example.org.":
            client.zone.set_service("default/ext", ServiceRecord(external_name="example.net"))
            client.server.zone_changed()
        return answering(f"{query.q.qname} 60 A 192.0.2.1")(query)

    async with serving(answer) as (client, _):
        assert addresses(await client.ask(name)) == ["192.0.2.1", "example.org."]
        assert addresses(await client.ask(name)) == ["192.0.2.1", "example.net."]


async def test_without_a_server_outside_the_reply_says_so() -> None:
    async with serving() as (client, _):
        client.server._forwarder.use([])
        assert (await client.ask("example.org")).header.rcode == 2
        # The alias is known without it.
        assert addresses(await client.ask("ext.default.svc.cluster.local")) == ["example.org."]


async def test_a_server_that_failed_comes_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.network.dns.forwarding._AVOIDED_S", 1000.0)

    def name_server(port: int, address: str) -> Any:
        answers = answering(f"example.org 60 A {address}")
        loop = asyncio.get_running_loop()
        return loop.create_datagram_endpoint(lambda: Outside(answers), ("127.0.0.1", port))

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    second, _ = await name_server(0, "192.0.2.2")
    servers = [f"127.0.0.1#{port}", f"127.0.0.1#{second.get_extra_info('sockname')[1]}"]
    forwarder = Forwarder(servers)

    async def answer() -> list[str]:
        name = ("example", "org")
        return addresses(dnslib.DNSRecord.parse(await forwarder.ask(question(name, "A"), name)))

    assert await answer() == ["192.0.2.2"]
    first, _ = await name_server(port, "192.0.2.1")
    try:
        assert await answer() == ["192.0.2.2"]
        # A host whose network changed begins with the first again.
        forwarder.use(servers)
        assert await answer() == ["192.0.2.1"]
    finally:
        first.close()
        second.close()


async def test_forged_replies_do_not_count() -> None:
    def forging(query: dnslib.DNSRecord) -> list[dnslib.DNSRecord]:
        forged = [query.reply() for _ in range(3)]
        for reply in forged:
            reply.add_answer(*dnslib.RR.fromZone("example.org 60 A 203.0.113.6"))
        forged[0].header.id ^= 1
        forged[1].questions[0] = dnslib.DNSQuestion("example.net")
        forged[2].header.qr = 0
        return [*forged, *answering("example.org 60 A 192.0.2.1")(query)]

    async with serving(forging) as (client, _):
        assert addresses(await client.ask("example.org")) == ["192.0.2.1"]


async def test_after_garbage_the_server_still_answers() -> None:
    async with serving() as (client, _):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for garbage in (
                b"",
                b"x",
                b"\0" * 11,
                b"\xff" * 600,
                b"\0\0\1\0\0\1" + b"\xc0\x0c" * 40,
            ):
                sender.sendto(garbage, ("127.0.0.1", client.port))
        reader, writer = await asyncio.open_connection("127.0.0.1", client.tcp_port)
        writer.write(b"\0\3abc")
        assert await reader.read() == b""
        writer.close()
        assert addresses(await client.ask(WEB)) == ["10.96.0.7"]


@given(
    st.binary(max_size=80)
    | st.binary(max_size=60).map(lambda tail: b"\0\0\1\0\0\1\0\0\0\0\0\0" + tail)
)
def test_any_bytes_are_a_query_or_unreadable(data: bytes) -> None:
    try:
        query = parse_query(data)
    except UnreadableError:
        return
    assert query.room >= 512


@given(st.binary(max_size=200))
def test_any_bytes_have_lifetimes_or_are_malformed(data: bytes) -> None:
    try:
        places = lifetimes(data)
    except ValueError:
        return
    assert all(0 < place <= len(data) - 4 for place in places)


def test_lifetimes_are_those_of_the_records() -> None:
    reply = dnslib.DNSRecord.question("a.example").reply()
    reply.add_answer(*dnslib.RR.fromZone("a.example 60 A 192.0.2.1\na.example 70 A 192.0.2.2"))
    reply.add_ar(dnslib.EDNS0(udp_len=1232))
    packed = reply.pack()
    assert [struct.unpack_from("!I", packed, at)[0] for at in lifetimes(packed)] == [60, 70]


def test_a_reply_repeats_id_and_question() -> None:
    query = dnslib.DNSRecord.question("a.example")
    reply = query.reply()
    assert is_reply_to(reply.pack(), query.pack())
    assert not is_reply_to(query.pack(), query.pack())
    assert not is_reply_to(b"", query.pack())


def test_a_query_of_ten_thousand_records_is_not_parsed() -> None:
    """It took a second, in which no one else was answered."""
    head = struct.pack("!6H", 1, 0x100, 1, 0, 0, 5000)
    with pytest.raises(UnreadableError, match="more records than any query has"):
        parse_query(head + b"\x01a\0" + struct.pack("!2H", 1, 1), by_tcp=True)


async def test_equal_queries_are_asked_outside_once() -> None:
    held: list[dnslib.DNSRecord] = []

    def hold(query: dnslib.DNSRecord) -> list[dnslib.DNSRecord]:
        held.append(query)
        return []

    async with serving(hold) as (client, outside):
        query = bytes(dnslib.DNSRecord.question("example.org").pack())
        asking = [asyncio.ensure_future(client.send(bytes([0, n]) + query[2:])) for n in range(9)]
        await until(lambda: len(client.server._waiting.get(query[2:], [])) == 9)
        await until(lambda: outside.asked == 1)
        assert outside.asked == 1
        reply = held[0].reply()
        reply.add_answer(*dnslib.RR.fromZone("example.org 60 A 192.0.2.1"))
        outside.send(reply.pack())
        replies = [dnslib.DNSRecord.parse(one) for one in await asyncio.gather(*asking)]
        assert [one.header.id for one in replies] == list(range(9))
        assert all(addresses(one) == ["192.0.2.1"] for one in replies)
        assert not client.server._waits_of


async def test_a_client_that_floods_takes_no_others_place() -> None:
    async with serving() as (client, outside):
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:
            flood.setblocking(False)
            flood.bind(("127.0.0.2", 0))
            flood.connect(("127.0.0.1", client.port))
            for number in range(150):
                name = f"n{number}.example.org"
                await loop.sock_sendall(flood, dnslib.DNSRecord.question(name).pack())
            async with asyncio.timeout(20):
                refused = dnslib.DNSRecord.parse(await loop.sock_recv(flood, 512))
            await until(lambda: outside.asked == 100)
        assert refused.header.rcode == 2
        assert outside.asked == 100
        other = asyncio.ensure_future(client.send(dnslib.DNSRecord.question("a.org").pack()))
        await until(lambda: outside.asked == 101)
        other.cancel()


async def test_a_client_that_holds_connections_takes_no_others_place() -> None:
    async with serving() as (client, _):
        held = [
            await asyncio.open_connection("127.0.0.1", client.tcp_port, local_addr=("127.0.0.2", 0))
            for _ in range(30)
        ]
        async with asyncio.timeout(20):
            # The twenty-first is closed, and so on.
            assert await held[-1][0].read() == b""
        assert [addresses(one) for one in await client.ask_by_tcp(WEB)] == [["10.96.0.7"]]
        for _, writer in held:
            writer.close()


async def test_large_replies_from_outside_are_not_kept() -> None:
    texts = [f"example.org 60 A 192.0.2.{number}" for number in range(100)]
    async with serving(answering(*texts)) as (client, outside):
        for _ in range(2):
            await client.ask("example.org", udp_len=4096)
        assert outside.asked == 2


async def test_an_external_name_brings_no_names_but_its_own() -> None:
    forged = (f"{WEB} 60 A 192.0.2.66", "other.org 60 A 192.0.2.66")
    alias = ("example.org 60 CNAME www.example.net", "www.example.net 60 A 192.0.2.1")
    async with serving(answering(*forged, *alias)) as (client, _):
        reply = await client.ask("ext.default.svc.cluster.local")
        assert [str(record.rname) for record in reply.rr] == [
            "ext.default.svc.cluster.local.", "example.org.", "www.example.net.",
        ]  # fmt: skip


@pytest.mark.parametrize("target", ["a" * 64 + ".org", ".".join(["a" * 60] * 5)])
async def test_an_external_name_that_is_none_has_no_records(target: str) -> None:
    async with serving() as (client, _):
        client.zone.set_service("default/ext", ServiceRecord(external_name=target))
        reply = await client.ask("ext.default.svc.cluster.local")
        assert (reply.header.rcode, reply.rr) == (0, [])

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from agym.envs.clients.keepalive import KeepAlive, TooLong
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Peer:
    """A server that gives each request the next of the answers it was told to give; None closes the connection."""

    def __init__(self, answers: Sequence[bytes | None]) -> None:
        self._answers = list(answers)
        self.num_connections = 0
        self.requests: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self.writers.append(writer)
        try:
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(dict(httpx.Headers(_pairs(head))).get("content-length", 0))
                self.requests.append(head + await reader.readexactly(length))
                answer = self._answers.pop(0)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


def _pairs(head: bytes) -> list[tuple[str, str]]:
    lines = head.decode("ascii").split("\r\n")[1:-2]
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


@asynccontextmanager
async def reached(
    answers: Sequence[bytes | None], transport: KeepAlive | None = None, secure: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[httpx.AsyncClient, Peer]]:
    peer = Peer(answers)
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0, ssl=secure)
    port = server.sockets[0].getsockname()[1]
    url, line = f"{'https' if secure else 'http'}://127.0.0.1:{port}", transport or KeepAlive()
    async with httpx.AsyncClient(transport=line, base_url=url, timeout=None) as http:
        yield http, peer
    server.close()
    for writer in peer.writers:
        writer.close()
    await asyncio.sleep(0.01)


async def test_a_connection_is_used_again() -> None:
    async with reached([OK, OK, OK]) as (http, peer):
        for _ in range(3):
            response = await http.post("/x?y=1", content=b"body")
            assert (response.status_code, response.json()) == (200, {})
        assert peer.num_connections == 1
        assert peer.requests[0].startswith(b"POST /x?y=1 HTTP/1.1\r\n")
        assert peer.requests[0].endswith(b"\r\n\r\nbody")


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async with reached([OK] * 3, KeepAlive(trusted_s=0.05)) as (http, peer):
        await http.get("/")
        await http.get("/")
        assert peer.num_connections == 1
        await asyncio.sleep(0.1)
        await http.get("/")
        assert peer.num_connections == 2


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    async with reached([OK] * 4) as (http, peer):
        await asyncio.gather(*(http.get("/") for _ in range(4)))
        assert peer.num_connections == 4


async def test_an_answer_in_pieces_is_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    async with reached([chunked, OK]) as (http, peer):
        assert (await http.get("/")).content == b"{}"
        assert (await http.get("/")).content == b"{}"
        assert peer.num_connections == 1


async def test_a_server_that_wants_no_more_on_a_connection_gets_another() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with reached([closing, OK]) as (http, peer):
        await http.get("/")
        await http.get("/")
        assert peer.num_connections == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (None, httpx.ReadError),
        (b"SSH-2.0-OpenSSH\r\n\r\n", httpx.RemoteProtocolError),
    ],
)
async def test_what_is_no_answer_is_an_error_and_the_next_request_starts_anew(
    answer: bytes | None, error: type[Exception]
) -> None:
    async with reached([answer, OK]) as (http, peer):
        with pytest.raises(error):
            await http.get("/")
        assert (await http.get("/")).status_code == 200
        assert peer.num_connections == 2


async def test_an_answer_that_stops_half_way_is_an_error() -> None:
    async with reached([OK[:-1], None]) as (http, peer):
        half = asyncio.create_task(http.get("/"))
        while not peer.requests:
            await asyncio.sleep(0.01)
        peer.writers[0].close()
        with pytest.raises(httpx.ReadError):
            await half


async def test_the_answer_to_a_request_given_up_is_not_taken_for_the_next() -> None:
    async with reached([b"", OK]) as (http, peer):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(http.get("/first"), 0.05)
        assert (await http.get("/second")).status_code == 200
        assert peer.num_connections == 2


async def test_words_that_nobody_asked_for_are_not_taken_for_an_answer() -> None:
    async with reached([OK + OK, OK]) as (http, peer):
        await http.get("/")
        assert (await http.get("/")).status_code == 200
        assert len(peer.requests) == 2


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://127.0.0.1:99999/", "http://a..b/"])
async def test_nobody_at_home_is_a_connect_error(url: str) -> None:
    async with httpx.AsyncClient(transport=KeepAlive()) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url)


@pytest.mark.parametrize("answer", [b"HTTP/1.0 200 OK\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nserver: x\r\n\r\n{}"])
async def test_an_answer_without_a_length_is_whole_when_its_connection_ends(answer: bytes) -> None:
    async with reached([answer]) as (http, _):
        assert (await http.get("/")).content == b"{}"


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.0 200 OK\r\nserver: x", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"]
)
async def test_an_answer_that_says_where_it_ends_is_not_whole_before(answer: bytes) -> None:
    async with reached([answer]) as (http, _):
        with pytest.raises(httpx.ReadError):
            await http.get("/")


async def test_no_answer_is_unpacked() -> None:
    packed = gzip.compress(b"{}")
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    async with reached([head + packed, OK]) as (http, peer):
        with pytest.raises(httpx.DecodingError, match="expected no encoding, got b'gzip'"):
            await http.get("/")
        assert (await http.get("/")).status_code == 200
        assert all(request.count(b"ccept-encoding: identity\r\n") == 1 for request in peer.requests)
        assert not any(b"gzip" in request for request in peer.requests)


@pytest.mark.parametrize(
    "endless",
    [
        b"HTTP/1.1 200 OK\r\nserver: x\r\n\r\n" + b"x" * 100,
        b"HTTP/1.1 200 OK\r\nserver: " + b"x" * 100,  # no header, body or line has an end
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20,
    ],
)
async def test_an_answer_without_end_is_given_up_at_the_limit(endless: bytes) -> None:
    async with reached([endless, OK], KeepAlive(max_answer=100)) as (http, _):
        with pytest.raises(TooLong, match="the answer is longer than 100 bytes"):
            await http.get("/")
        assert (await http.get("/")).status_code == 200


# --- with certificates ---


@dataclass(frozen=True, slots=True)
class Vouched:
    """A server that says it is 127.0.0.1, and whoever believes it."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def vouched(tmp_path_factory: pytest.TempPathFactory) -> Vouched:
    key, name = generate_private_key(SECP256R1()), x509.Name([])
    since, until = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, since, until)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, SHA256())
        .public_bytes(Encoding.PEM)
    )
    file: Path = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(certificate + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return Vouched(server, ssl.create_default_context(cadata=certificate.decode("ascii")))


async def test_a_server_with_a_certificate_is_reached_alike(vouched: Vouched) -> None:
    long, line = OK + b"x" * 100, KeepAlive(certificates=vouched.client, max_answer=100)
    async with reached([OK, OK, long], line, vouched.server) as (http, peer):
        assert (await http.get("/")).content == b"{}"
        assert (await http.get("/")).content == b"{}"
        assert peer.num_connections == 1
        with pytest.raises(TooLong, match="longer than 100 bytes"):
            await http.get("/")


async def test_a_certificate_that_nobody_vouches_for_is_a_connect_error(vouched: Vouched) -> None:
    async with reached([OK], KeepAlive(), vouched.server) as (http, peer):
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            await http.get("/")
        assert not peer.requests

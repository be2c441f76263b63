"""What is fetched from a web server on loopback, and what must not be fetched at all. No name server is asked."""

import asyncio
import base64
import gzip
import itertools
import os
import re
import socket
import socketserver
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce.errors import ConfigError, MediaError
from transduce.media.addresses import is_public, resolve
from transduce.media.fetch import FetchPolicy, afetch, fetch

CONTENT = bytes(range(256)) * 4
TRUSTING = FetchPolicy(frozenset({"media.test", "second.test"}), size=len(CONTENT))
NAMES = {
    "media.test": ["127.0.0.1"],
    "second.test": ["127.0.0.2", "127.0.0.1"],  # nobody listens at the first
    "localhost": ["::1", "127.0.0.1"],
    "inside.test": ["10.0.0.1"],
    "half.test": ["93.184.215.14", "192.168.0.1"],
    "xn--mnchen-3ya.test": ["10.0.0.1"],
}


class Names:
    """A name server that answers from NAMES, and for numbers what the operating system makes of them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if re.fullmatch("[0-9a-fx.:]*", host):
            return await resolve(host, port)
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return NAMES[host]


def answer(
    *parts: bytes, status: str = "200 OK", length: int | None = None, headers: Iterable[str] = ()
) -> list[bytes]:
    """A response whose body is `parts`. length: what it says of that, if that is something else."""
    size = sum(map(len, parts)) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {size}", *headers, "", ""]
    return ["\r\n".join(lines).encode(), *parts]


def moved(place: str, status: str = "302 Found") -> list[bytes]:
    return answer(b"secret", status=status, headers=[f"Location: {place}"])


def until_close(*parts: Iterable[bytes], headers: str = "") -> Iterable[bytes]:
    return itertools.chain([f"HTTP/1.1 200 OK\r\n{headers}\r\n".encode()], *parts)


def bomb() -> bytes:
    return gzip.compress(bytes(1 << 22))


def drops() -> Iterator[bytes]:
    """A byte now and then, so that no single read takes long."""
    while True:
        yield b"x"
        time.sleep(0.01)


HANGS = b""  # instead of bytes: wait until the client is gone
ROUTES: dict[str, Callable[[], Iterable[bytes]]] = {
    "/picture": lambda: answer(CONTENT),
    "/typed": lambda: answer(CONTENT, headers=["Content-Type: text/html", "Set-Cookie: a=b"]),
    "/open": lambda: until_close([CONTENT]),
    "/gzip": lambda: answer(gzip.compress(CONTENT), headers=["Content-Encoding: gzip"]),
    "/deflate": lambda: answer(zlib.compress(CONTENT), headers=["Content-Encoding: deflate"]),
    "/cut-gzip": lambda: answer(gzip.compress(CONTENT)[:-9], headers=["Content-Encoding: gzip"]),
    "/two-gzips": lambda: answer(gzip.compress(b"a") + gzip.compress(b"b"), headers=["Content-Encoding: gzip"]),
    "/no-gzip": lambda: answer(CONTENT, headers=["Content-Encoding: gzip"]),
    "/brotli": lambda: answer(CONTENT, headers=["Content-Encoding: br"]),
    "/bomb": lambda: answer(bomb(), headers=["Content-Encoding: gzip"]),
    "/large": lambda: answer(CONTENT, b"+"),
    "/says-large": lambda: answer(HANGS, length=len(CONTENT) + 1),
    "/says-less": lambda: answer(CONTENT, b"smuggled", length=len(CONTENT)),
    "/says-more": lambda: answer(b"short", length=9),
    "/endless": lambda: until_close(itertools.repeat(bytes(65_536))),
    "/hangs": lambda: [HANGS],
    "/stops": lambda: until_close([b"a", HANGS]),
    "/drips": lambda: itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], drops()),
    "/endless-head": lambda: itertools.chain([b"HTTP/1.1 200 OK\r\nX: "], itertools.repeat(b"x" * 65_536)),
    "/no-http": lambda: [b"SSH-2.0-OpenSSH_9.6\r\n"],
    "/missing": lambda: answer(b"secret", status="404 Not Found"),
    "/nothing": lambda: answer(status="204 No Content"),
    "/moved": lambda: moved("/picture"),
    "/moved-to-second": lambda: moved("//second.test:{port}/picture", "308 Permanent Redirect"),
    "/moved-twice": lambda: moved("moved"),
    "/loop": lambda: moved("/loop"),
    "/moved-inside": lambda: moved("http://inside.test/"),
    "/moved-to-metadata": lambda: moved("http://169.254.169.254/latest/meta-data/", "307 Temporary Redirect"),
    "/moved-to-file": lambda: moved("file:///etc/passwd"),
    "/moved-to-data": lambda: moved("data:,hello"),
    "/moved-with-user": lambda: moved("http://me:secret@media.test:{port}/picture"),
    "/moved-nowhere": lambda: moved("http://media.test:x/"),
}  # fmt: skip


class Handler(socketserver.StreamRequestHandler):
    """Sends a route's bytes as they are, and keeps what was asked."""

    def handle(self) -> None:
        assert isinstance(self.server, Server)
        head = b"".join(iter(self.rfile.readline, b"\r\n")).decode()
        self.server.heads.append(head)
        port = str(self.server.server_address[1]).encode()
        try:
            for part in ROUTES[head.split()[1].partition("?")[0]]():
                if part == HANGS:
                    self.rfile.read(1)
                self.wfile.write(part.replace(b"{port}", port))
        except ConnectionError:
            pass  # the client has enough


class Server(socketserver.ThreadingTCPServer):
    """On a free port of 127.0.0.1."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.heads: list[str] = []

    def url(self, path: str, host: str = "media.test") -> str:
        return f"http://{host}:{self.server_address[1]}{path}"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "path",
    ["/picture", "/typed", "/open", "/gzip", "/deflate", "/moved", "/moved-to-second", "/moved-twice", "/says-less"],
)
def test_what_is_allowed_is_fetched(server: Server, path: str) -> None:
    assert fetch(server.url(path), TRUSTING, Names()) == CONTENT
    assert asyncio.run(afetch(server.url(path), TRUSTING, Names())) == CONTENT


def test_one_resolution_serves_check_and_connection(server: Server) -> None:
    """media.test is nowhere but in Names: the connection went to the address that was checked, under the name."""
    names = Names()
    fetch(server.url("/picture?a=1#part", "MEDIA.test."), TRUSTING, names)
    head = server.heads[-1].lower()
    assert names.asked == ["media.test"]
    assert head.startswith("get /picture?a=1 http/1.1\r\n")
    assert f"\nhost: media.test:{server.server_address[1]}\r" in head


def test_the_next_address_is_tried_where_nobody_listens(server: Server) -> None:
    assert fetch(server.url("/picture", "second.test"), TRUSTING, Names()) == CONTENT


def test_no_cookies_no_credentials_no_proxy(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (tmp_path / "netrc").write_text("machine media.test login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    fetch(server.url("/typed"), TRUSTING, Names())
    assert fetch(server.url("/moved"), TRUSTING, Names()) == CONTENT
    assert not re.search("cookie|authorization|secret", server.heads[-1], re.IGNORECASE)


def test_inside_of_an_event_loop_too(server: Server) -> None:
    async def notebook() -> bytes:
        return fetch(server.url("/picture"), TRUSTING, Names())

    assert asyncio.run(notebook()) == CONTENT


def test_tls_asks_for_the_name() -> None:
    """And so checks the certificate against it. This server has none: it hears whom the client wants, and fails."""
    asked: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection, pytest.raises(ssl.SSLError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(MediaError, match=r"'https://media.test:.*' cannot be fetched: .*SSL"):
            fetch(f"https://media.test:{listener.getsockname()[1]}/", TRUSTING, Names())
        thread.join()
    assert asked == ["media.test"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/large", "holds more than 1024 bytes; send a smaller file"),
        ("/says-large", "holds more than 1024 bytes"),
        ("/endless", "holds more than 1024 bytes"),
        ("/bomb", "holds more than 1024 bytes"),
        ("/says-more", "cannot be fetched: .*; check the URL, or send the file as a data: URL"),
        ("/cut-gzip", "is compressed content that is cut short"),
        ("/two-gzips", "goes on after its end"),
        ("/no-gzip", "cannot be fetched: .*incorrect header"),
        ("/brotli", "is compressed as 'br', which is not read"),
        ("/no-http", "cannot be fetched"),
        ("/missing", "answers with status 404; check the URL"),
        ("/nothing", "answers with status 204"),
        ("/loop", "redirects more than 5 times; give the URL where it ends"),
        ("/moved-inside", r"\(redirects to 'http://inside\.test/?'\): .*not public"),
        ("/moved-to-metadata", r"\(redirects to 'http://169.254.169.254/latest/meta-data/'\): .*not public"),
        ("/moved-to-file", r"\(redirects to 'file:/etc/passwd'\) is no http"),
        ("/moved-to-data", "cannot be fetched: .*check the URL"),
        ("/moved-with-user", r"\(redirects to 'http://media.test:[0-9]*/picture'\) names a user or password"),
        ("/moved-nowhere", "cannot be fetched: .*Invalid port"),
        ("/endless-head", "cannot be fetched"),
    ],
)
def test_what_a_server_does_wrong_is_an_error(server: Server, path: str, message: str) -> None:
    with pytest.raises(MediaError, match=message) as caught:
        fetch(server.url(f"{path}?signature=hidden"), TRUSTING, Names())
    assert f"media.test:{server.server_address[1]}{path}" in str(caught.value)
    assert not re.search("secret|hidden|127.0.0.1|10.0.0.1", str(caught.value))


@pytest.mark.parametrize("path", ["/hangs", "/stops", "/drips"])
def test_all_of_it_has_to_arrive_in_time(server: Server, path: str) -> None:
    """Also where each byte comes soon enough after the last."""
    with pytest.raises(MediaError, match=r"did not arrive within 0\.1 s"):
        fetch(server.url(path), replace(TRUSTING, seconds=0.1), Names())


def test_a_name_server_that_does_not_answer() -> None:
    async def silent(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return [f"{host}:{port}"]

    with pytest.raises(MediaError, match=r"did not arrive within 0\.01 s"):
        fetch("http://media.test/", replace(TRUSTING, seconds=0.01), silent)


PRIVATE = (
    "http://127.0.0.1/", "http://127.1.2.3:8000/", "http://2130706433/", "http://0x7f.1/", "http://0177.1/",
    "http://0x7f000001/", "http://127.1/", "http://0/", "http://0.0.0.0/", "http://10.1.2.3/", "http://172.31.255.255/",
    "http://192.168.1.1/", "http://100.100.100.200/", "http://169.254.169.254/latest/meta-data/", "http://168.63.129.16/",
    "http://192.0.0.192/", "http://198.18.0.1/", "http://192.88.99.1/", "http://203.0.113.9/", "http://224.0.0.1/",
    "http://239.255.255.250/", "http://240.0.0.1/", "http://255.255.255.255/", "http://[::1]/", "http://[::]/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:0:127.0.0.1]/", "http://[::127.0.0.1]/",
    "http://[::ffff:8.8.8.8]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/", "http://[2001:0:7f00:1::1]/", "http://[2001:db8::1]/",
    "http://[3fff::1]/", "http://[100::1]/", "http://[fc00::1]/", "http://[fd00:ec2::254]/", "http://[fe80::1]/",
    "http://[fec0::1]/", "http://[ff02::1]/", "http://[4000::1]/", "http://inside.test/", "http://inside.test./",
    "http://INSIDE.test/", "http://half.test/", "https://inside.test/", "HTTP://inside.test/", "http://münchen.test/",
    "http://nowhere.test/", "http://localhost./",
    "http://inside.test#@media.test/", "http://inside.test?@media.test/", "http://media.test.inside.test/",
    "http://a%00b/", "http://media.test,inside.test/", "http://*/",
)  # fmt: skip
MALFORMED = (
    "http://", "http:///etc/passwd", "http:", "http://media.test:0/", "http://media.test:65536/", "http://media.test:-1/",
    "http://media.test:x/", "http://:80/", "http://./", "http://me@media.test/", "http://me:secret@media.test/",
    "http://media.test@inside.test/", "http://@@media.test/", "http://media.test/\r\nX: y", "http://media.test/\0", "http://[::1",
    "http://[media.test]/", "http://999.1.1.1/", "http://0177.0.0.01/", "http:\\\\inside.test/",
    "http://inside.test\\@media.test/", "http://media.test%2f@inside.test%2f/", "http://１２７.0.0.1/",
    "http://127。0。0。1/", "http://\u200d/", "http://?a", "http://#a",
    "", "media.test", "//media.test/", "/etc/passwd", " http://media.test/", "ftp://media.test/", "gopher://media.test/",
    "javascript:1", "blob:http://media.test/1", "file", "s3://bucket/key", f"http://media.test/{'a' * 70_000}",
)  # fmt: skip


@pytest.mark.parametrize("url", PRIVATE)
def test_what_leads_inside_is_not_asked(url: str) -> None:
    """Nothing listens anywhere here: had there been a connection, it would be another error."""
    with pytest.raises(MediaError, match="has no address, or one that is not public; check the URL, send"):
        fetch(url, TRUSTING, Names())


@pytest.mark.parametrize("url", MALFORMED)
def test_what_is_no_url_for_us_is_refused(url: str) -> None:
    with pytest.raises(MediaError, match=r"check the URL|send the file as a data: URL") as caught:
        fetch(url, TRUSTING, Names())
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("host", ["..media.test", f"{'a' * 64}.test"])
def test_what_is_no_host_name_has_no_address(host: str) -> None:
    with pytest.raises(OSError, match="is no host name"):
        asyncio.run(resolve(host, 80))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "2a00:1450:4001::1", "64:ff9b::808:808", "1.1.1.1"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


def test_hosts_are_those_named_and_no_others(server: Server) -> None:
    only = FetchPolicy(frozenset({"Media.Test.", "münchen.test"}), public=False)
    assert fetch(server.url("/picture"), only, Names()) == CONTENT
    assert only.trusts("xn--mnchen-3ya.test")
    for host in ("second.test", "93.184.215.14", "sub.media.test"):
        names = Names()
        with pytest.raises(MediaError, match=f"host '{host}' is not one that is fetched from here"):
            fetch(f"http://{host}/", only, names)
        assert names.asked == []
    assert fetch(server.url("/picture", "127.0.0.1"), FetchPolicy(frozenset({"127.0.0.1"})), Names()) == CONTENT


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"hosts": frozenset({"http://media.test"})}, "host 'http://media.test' .*give a name without scheme"),
        ({"hosts": frozenset({"media.test:80"})}, "media.test:80"),
        ({"hosts": frozenset({""})}, "host ''"),
        ({"size": 0}, "allows nothing"),
        ({"seconds": 0}, "allows nothing"),
        ({"redirects": -1}, "allows nothing"),
        ({"folder": Path("/no/such")}, "folder '/no/such' for file:// URLs is no directory"),
    ],
)
def test_a_policy_that_cannot_be_meant(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FetchPolicy(**setting)


@pytest.mark.parametrize(
    ("url", "content"),
    [
        ("data:image/png;base64," + base64.b64encode(CONTENT).decode(), CONTENT),
        ("DATA:;BASE64,aGVs%62G8%3D", b"hello"),
        ("data:;base64,aGVs\nbG8", b"hello"),
        ("data:image/png;name=a%2Cb;base64,aGVsbG8=", b"hello"),
        ("data:,a%20b+c%00", b"a b+c\0"),
        ("data:text/plain,%", b"%"),
        ("data:;base64,", b""),
        ("data:," + "%41" * len(CONTENT), b"A" * len(CONTENT)),
    ],
)
def test_data_urls(url: str, content: bytes) -> None:
    assert fetch(url, TRUSTING) == content


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("data:image/png;base64", "has no comma; write data:image/png;base64,"),
        ("data:;base64,a-_b", "is no base64: .*; encode the file's bytes"),
        ("data:;base64,aGVsb", "is no base64"),
        ("data:;base64,aG=Vs", "is no base64"),
        ("data:;base64," + base64.b64encode(CONTENT + b"+").decode(), "holds more than 1024 bytes"),
        ("data:," + "a" * 1025, "holds more than 1024 bytes"),
        ("data:;base64," + "-" * 1_000_000, "holds more than 1024 bytes"),
    ],
)
def test_data_urls_that_hold_nothing_or_too_much(url: str, message: str) -> None:
    with pytest.raises(MediaError, match=message) as caught:
        fetch(url, TRUSTING)
    assert len(str(caught.value)) < 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """allowed/ with a file, links and a pipe, and a file outside."""
    allowed = tmp_path / "allowed"
    (allowed / "sub").mkdir(parents=True)
    (tmp_path / "allowed-too").mkdir()
    for place in ("allowed/a b.png", "secret.png", "allowed-too/c.png"):
        (tmp_path / place).write_bytes(CONTENT)
    (allowed / "large.png").write_bytes(CONTENT + b"+")
    (allowed / "inner").symlink_to(allowed / "a b.png")
    (allowed / "outer").symlink_to(tmp_path / "secret.png")
    (allowed / "up").symlink_to(tmp_path)
    (allowed / "circle").symlink_to(allowed / "circle")
    os.mkfifo(allowed / "pipe")
    return allowed


@pytest.mark.parametrize("path", ["a b.png", "a%20b.png", "inner", "sub/../a%20b.png"])
def test_files_in_the_folder(folder: Path, path: str) -> None:
    policy = replace(TRUSTING, folder=folder)
    for url in (f"file://{folder}/{path}", f"file://localhost{folder}/{path}", f"FILE:{folder}/{path}"):
        assert fetch(url, policy) == CONTENT


@pytest.mark.parametrize(
    "path",
    [
        "outer", "up/secret.png", "../secret.png", "%2e%2e/secret.png", "../allowed-too/c.png",
        "circle", "pipe", "sub", "no", "", "%00", "x" * 5000,
    ],
)  # fmt: skip
def test_no_other_files(folder: Path, path: str) -> None:
    """In the same words whether there is one or not."""
    with pytest.raises(MediaError, match="is no file that may be read; give one in the allowed folder"):
        fetch(f"file://{folder}/{path}", replace(TRUSTING, folder=folder))


def test_files_of_other_hosts_too_large_or_not_allowed_at_all(folder: Path) -> None:
    policy = replace(TRUSTING, folder=folder)
    with pytest.raises(MediaError, match="is no file that may be read"):
        fetch(f"file://media.test{folder}/inner", policy)
    with pytest.raises(MediaError, match="holds more than 1024 bytes"):
        fetch(f"file://{folder}/large.png", policy)
    with pytest.raises(MediaError, match="file:// URLs are not read here; send the file as a data: URL"):
        fetch(f"file://{folder}/inner", TRUSTING)

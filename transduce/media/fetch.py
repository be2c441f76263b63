"""The bytes behind a URL that a client sent: http, https, data and file, each as far as a policy allows.

Owns the guard against requests to where only this machine can reach: every host, that of a redirect too, is resolved
once, its addresses are checked, and the connection goes to one of those very addresses, so that a second answer of
the name server changes nothing. Owns the limits on bytes, time and redirects too. Believes neither Content-Length nor
Content-Type; sends no cookies and no credentials; uses no proxy, behind which addresses could not be checked. Knows
no kind of media.
"""

import asyncio
import contextlib
import functools
import ssl
import zlib
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from transduce.errors import ConfigError, MediaError
from transduce.media.addresses import Resolver, is_public, resolve
from transduce.media.local import read_data, read_file, shown, too_large

_SEND = "send the file as a data: URL"
_PORTS = range(1, 65_536)
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """What may be fetched, and how much of it. Raises ConfigError for what cannot be meant.

    hosts: names or addresses that are fetched from wherever they lead, such as a store in one's own network.
    public: whether other hosts are fetched from too, if all their addresses are public. False: `hosts` alone.
    folder: where file:// URLs may lie once symbolic links are followed; None: no such URL is read.
    size: bytes of one file, after any compression.
    seconds: how long one URL may take, from its name's resolution to its last byte.
    redirects: how many are followed, each checked like the first URL.
    """

    hosts: frozenset[str] = frozenset()
    public: bool = True
    folder: Path | None = None
    size: int = 64 << 20
    seconds: float = 15.0
    redirects: int = 5

    def __post_init__(self) -> None:
        for host in self.hosts:
            if not _canonical(host):
                raise ConfigError(f"host {host!r} may not be fetched from: give a name without scheme, port or path")
        if self.size < 1 or self.seconds <= 0 or self.redirects < 0:
            raise ConfigError(f"{self} allows nothing: give a size and seconds above 0, and redirects of 0 or more")
        if self.folder is not None and not self.folder.is_dir():
            raise ConfigError(f"folder {str(self.folder)!r} for file:// URLs is no directory; give one that is")

    def trusts(self, host: str) -> bool:
        """Whether an ASCII host name without the last dot is one of `hosts`."""
        return host in map(_canonical, self.hosts)


def fetch(url: str, policy: FetchPolicy, resolver: Resolver = resolve) -> bytes:
    """As `afetch`, and blocks; also inside of an event loop, as that of a notebook."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, afetch(url, policy, resolver)).result()


async def afetch(url: str, policy: FetchPolicy, resolver: Resolver = resolve) -> bytes:
    """Get what a URL holds. resolver: what asks for addresses in place of the operating system.

    Raises MediaError, which names the URL and the way out, where the policy or its limits refuse it, or it fails.
    """
    match url.partition(":")[0].lower():
        case "data":
            return await asyncio.to_thread(read_data, url, policy.size)
        case "file":
            return await asyncio.to_thread(read_file, url, policy.folder, policy.size)
        case "http" | "https":
            async with _refusing(url, policy):
                return await _from_web(url, policy, resolver)
        case _:
            raise MediaError(f"{shown(url)} is no http(s) or data: URL; {_SEND}")


@contextlib.asynccontextmanager
async def _refusing(url: str, policy: FetchPolicy) -> AsyncIterator[None]:
    """Turn time that is up and what httpx and zlib raise into a MediaError about `url`."""
    try:
        async with asyncio.timeout(policy.seconds):
            yield
    except (TimeoutError, httpx.TimeoutException) as error:
        raise MediaError(f"{shown(url)} did not arrive within {policy.seconds:g} s; {_SEND}") from error
    except (httpx.HTTPError, httpx.InvalidURL, zlib.error) as error:
        raise MediaError(f"{shown(url)} cannot be fetched: {error}; check the URL, or {_SEND}") from error


async def _from_web(first: str, policy: FetchPolicy, resolver: Resolver) -> bytes:
    url, name = httpx.URL(first), shown(first)
    for _ in range(policy.redirects + 1):
        answer = await _hop(url, name, policy, resolver)
        if isinstance(answer, bytes):
            return answer
        url, name = answer, f"{shown(first)} (redirects to {shown(str(answer))})"
    raise MediaError(f"{shown(first)} redirects more than {policy.redirects} times; give the URL where it ends")


async def _hop(url: httpx.URL, name: str, policy: FetchPolicy, resolver: Resolver) -> bytes | httpx.URL:
    """What one URL answers: content, or where to look for it."""
    host, port = _target(url, name)
    addresses = await _addresses(host, port, name, policy, resolver)
    patience = httpx.Timeout(policy.seconds, connect=policy.seconds / len(addresses))
    headers = {"Host": _netloc(url, host), "Accept-Encoding": "identity", "User-Agent": "transduce"}
    async with httpx.AsyncClient(verify=_certificates(), trust_env=False, timeout=patience, headers=headers) as client:
        pinned = (url.copy_with(host=address, fragment=None) for address in addresses)
        named = {"sni_hostname": host}  # what TLS asks for and checks, where the URL has an address
        response = await _first(client, [client.build_request("GET", each, extensions=named) for each in pinned])
        try:
            return await _answer(response, url, name, policy)
        finally:
            await response.aclose()


async def _first(client: httpx.AsyncClient, requests: Sequence[httpx.Request]) -> httpx.Response:
    """The answer to the first request that finds a connection; its body is still to be read."""
    for request in requests[:-1]:
        with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
            return await client.send(request, stream=True)
    return await client.send(requests[-1], stream=True)


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _canonical(host: str) -> str:
    """A host name in ASCII and lower case without the last dot; empty where it is none."""
    try:
        return httpx.URL(scheme="http", host=host).raw_host.decode("ascii").rstrip(".")
    except httpx.InvalidURL:
        return ""


def _netloc(url: httpx.URL, host: str) -> str:
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if url.port is None else f"{bracketed}:{url.port}"


def _target(url: httpx.URL, name: str) -> tuple[str, int]:
    """Host and port of a URL that is well formed. Connections are made from this same parse."""
    if url.scheme not in ("http", "https"):
        raise MediaError(f"{name} is no http(s) URL; {_SEND}")
    if url.userinfo:
        raise MediaError(f"{name} names a user or password, which are not sent; {_SEND}")
    host = url.raw_host.decode("ascii").rstrip(".")
    port = url.port if url.port is not None else {"http": 80, "https": 443}[url.scheme]
    if not host or port not in _PORTS:
        raise MediaError(f"{name} has no host, or a port that is none; check the URL")
    return host, port


async def _addresses(host: str, port: int, name: str, policy: FetchPolicy, resolver: Resolver) -> Sequence[str]:
    """One or more that may be connected to. The refusal does not tell what a name server of ours answers."""
    trusted = policy.trusts(host)
    if not trusted and not policy.public:
        raise MediaError(f"{name}: host {host!r} is not one that is fetched from here; {_SEND}")
    try:
        addresses = await resolver(host, port)
    except OSError:
        addresses = []
    if not addresses or not (trusted or all(map(is_public, addresses))):
        raise MediaError(
            f"{name}: host {host!r} has no address, or one that is not public; check the URL, {_SEND}, "
            "or have whoever runs this allow the host"
        )
    return addresses


async def _answer(response: httpx.Response, url: httpx.URL, name: str, policy: FetchPolicy) -> bytes | httpx.URL:
    if response.has_redirect_location:
        return url.join(response.headers["location"])
    if response.status_code != httpx.codes.OK:
        raise MediaError(f"{name} answers with status {response.status_code}; check the URL, or {_SEND}")
    if int(response.headers.get("content-length", 0)) > policy.size:
        raise too_large(str(url), policy.size)
    return await _content(response, str(url), policy.size)


async def _content(response: httpx.Response, url: str, most: int) -> bytes:
    """The body, uncompressed step by step: httpx would expand a whole chunk before anything could be counted."""
    inflater = _inflater(response, url)
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += inflater.decompress(chunk, most + 1 - len(content)) if inflater else chunk
        if len(content) > most:
            raise too_large(url, most)
    if inflater and (not inflater.eof or inflater.unused_data):
        raise MediaError(f"{shown(url)} is compressed content that is cut short, or goes on after its end; {_SEND}")
    return bytes(content)


def _inflater(response: httpx.Response, url: str) -> "zlib._Decompress | None":
    """None: the body is as it is, which was asked for; some stores compress all the same."""
    match coding := response.headers.get("content-encoding", "identity").strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(_GZIP_OR_ZLIB)
        case _:
            raise MediaError(f"{shown(url)} is compressed as {coding!r}, which is not read; {_SEND}")

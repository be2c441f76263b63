"""Which addresses of the network may be fetched from, and how a name becomes addresses.

Owns what counts as public. Knows no URL and opens no connection.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Addresses of (host, port), best first. Raises OSError where there are none."""

_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that was ever given out; the rest is special or unassigned
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

# What ipaddress calls global, in some or all of its versions, though it leads to this machine, its network or nowhere.
_SPECIAL = tuple(
    ipaddress.ip_network(block)
    for block in (
        "168.63.129.16/32",  # Azure's host, seen from its virtual machines
        "192.0.0.0/24",  # protocol assignments, and Oracle's metadata
        "192.88.99.0/24",  # relays of 6to4
        "2001::/23",  # protocol assignments, Teredo among them, which holds an IPv4 address
        "2002::/16",  # 6to4, which holds an IPv4 address
        "3fff::/20",  # documentation
    )
)


async def resolve(host: str, port: int, threads: Executor | None = None) -> list[str]:
    """Ask the operating system, which also reads 2130706433, 0x7f.1 and 0177.1 as addresses.

    threads: where it is asked, which may take long; None: in those of the event loop.
    """
    asked = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(threads, asked)
    except UnicodeError as error:  # a label that is empty or too long
        raise OSError(f"{host!r} is no host name") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(text: str) -> bool:
    """Whether an address is one of the public internet: not private, loopback, link-local, shared, multicast,
    reserved, unspecified, or an IPv6 address that holds such an IPv4 address."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(str(ipaddress.IPv4Address(address.packed[-4:])))
        if address not in _UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in block for block in _SPECIAL)

"""Who may ask the server, and what every answer says about itself: host names, origins, sizes, policy."""

from __future__ import annotations

import ipaddress
import socket

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
MOST_BODY = 64 * 1024
"""Bytes of a request."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_name(header: str) -> str:
    """The name or address in a Host header, without the port; empty if it has none."""
    if header.startswith("["):
        inside, found, rest = header[1:].partition("]")
        return inside if found and (not rest or rest.startswith(":")) else ""
    name, _, port = header.partition(":")
    return name.lower() if not port or port.isdigit() else ""


def names_of(host: str) -> frozenset[str]:
    """Names by which a server on this address may be called.

    A page elsewhere can make its own name point here (DNS rebinding), so unknown names are refused. Addresses cannot be
    taken over in this way: a server that listens on all of them answers to any address, see `allowed`.
    """
    return LOCAL | {host.strip("[]").lower()} | ({socket.gethostname().lower()} if host not in LOCAL else set())


def allowed(header: str, host: str) -> bool:
    """Whether a request with this Host header was meant for a server that listens on `host`."""
    name = host_name(header)
    if name in names_of(host):
        return True
    return is_everywhere(host) and _is_address(name)


def is_local(host: str) -> bool:
    """Whether only this machine reaches a server on this host."""
    return host.strip("[]").lower() in LOCAL


def is_everywhere(host: str) -> bool:
    """Whether it means all addresses of this machine."""
    return host.strip("[]") in ("0.0.0.0", "::")


def same_origin(origin: str, host_header: str) -> bool:
    """Whether a request comes from a page of this server."""
    return origin in (f"http://{host_header}", f"https://{host_header}")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

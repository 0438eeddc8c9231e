"""Addresses as people write them: ``host:port``, ``[v6]:port``, ``:port``, ``host``."""

from __future__ import annotations

import ipaddress

DEFAULT_PORT = 7400


def parse_address(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """(host, port) of an address; ValueError says what is wrong with it."""
    if not isinstance(text, str):
        raise TypeError(f"an address is a text such as '127.0.0.1:{DEFAULT_PORT}', not {text!r}")
    text = text.strip()
    if "://" in text:
        raise ValueError(f'not an address: {text!r}; write "host:port" without "://"')
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"not an address: {text!r}")
        port_text = rest[1:]
    elif text.count(":") > 1:
        host, port_text = text, ""
    else:
        host, _, port_text = text.partition(":")
    _check_host(host)
    if not port_text:
        return host or "127.0.0.1", default_port
    digits = port_text.isascii() and port_text.isdigit() and len(port_text) <= 5
    if not digits or int(port_text) > 65535:
        raise ValueError(f"not a port: {port_text!r} in {text!r}; a port is 0 to 65535")
    return host or "127.0.0.1", int(port_text)


def _check_host(host: str) -> None:
    """Raise if a host's name cannot be looked up: an empty or endless part, an odd character."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError(f"not a host: {host!r}") from None
    if "\0" in host or (":" in host and not _is_ipv6(host)):
        raise ValueError(f"not a host: {host!r}")


def _is_ipv6(host: str) -> bool:
    """Whether this is a number of IPv6, perhaps with the interface it is reached by."""
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def is_wildcard(text: str) -> bool:
    """Whether this means every address of a machine; other machines cannot dial it."""
    return parse_address(text)[0] in ("0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    """Whether an address that was bound is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:  # no address: nothing is known of it
        return False


def advertised(wish: str, host: str, port: int) -> str:
    """The address told to others: `wish`, with the bound port if it names none."""
    if not wish:
        return format_address(host, port)
    wished_host, wished_port = parse_address(wish, 0)
    return format_address(wished_host, wished_port or port)


def format_address(host: str, port: int) -> str:
    """The address of a host and a port, brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

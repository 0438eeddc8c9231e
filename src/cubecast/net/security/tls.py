"""Mutual TLS: its files, the role and name in a certificate, and refusals in words.

A certificate states a role and a name in a URI among its alternative names,
``cubecast://node/NAME`` or ``cubecast://client/NAME``.  The role, not the host's name, decides what
its holder may be: members dial each other at addresses that views name, and nodes move.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast, get_args

Role: TypeAlias = Literal["node", "client"]
ROLES: tuple[Role, ...] = get_args(Role)

SCHEME = "cubecast://"
NAME = r"[0-9A-Za-z][0-9A-Za-z._@-]{0,63}"
_stated = re.compile(rf"{SCHEME}({'|'.join(ROLES)})/({NAME})", re.ASCII).fullmatch


class TlsError(ConnectionError):
    """A TLS connection could not be made, or broke; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The PEM files of a node or a client: its own certificate and key, and the CAs it trusts.

    They are read again when they change.
    """

    ca: str
    """Certificates of the trusted CAs; several during a change of CA."""
    cert: str
    """Our certificate, followed by the intermediate ones up to the CA, if there are any."""
    key: str
    """The private key of our certificate, not encrypted."""
    crl: str = ""
    """The lists of revoked certificates, one of each CA; empty: none is revoked."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            object.__setattr__(self, one.name, str(value) if value else "")
            if not value and one.name != "crl":
                raise ValueError(f"tls_{one.name} must name a file, not {value!r}")


def tls_keys(tls: Tls | None) -> dict[str, Any]:
    """The keys of a configuration that name these files."""
    return {} if tls is None else {f"tls_{one.name}": getattr(tls, one.name) for one in fields(tls)}


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate states of its holder."""

    role: Role
    name: str

    @property
    def uri(self) -> str:
        return f"{SCHEME}{self.role}/{self.name}"


def stated(uris: Iterable[str]) -> Certificate | None:
    """The role and name that these URIs state; None if they state none, or more than one."""
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    found = _stated(ours[0]) if len(ours) == 1 else None
    return None if found is None else Certificate(cast(Role, found[1]), found[2])


def begins_tls(data: bytes | memoryview) -> bool:
    """Whether a connection's first bytes can be those of TLS: a handshake record, version 3.x.

    No packet of ours begins so: it would be longer than 64 KiB, and none is before a handshake.
    """
    return bytes(data[:2]) == b"\x16\x03"[: len(data)] and (len(data) < 3 or 0 < data[2] < 5)


def speaks_tls(transport: asyncio.BaseTransport) -> bool:
    """Whether a connection is by TLS, its peer's certificate verified."""
    return transport.get_extra_info("ssl_object") is not None


def peer_certificate(transport: asyncio.BaseTransport) -> Certificate | None:
    """What the verified certificate of the peer states; None if it states nothing, or no TLS."""
    found = transport.get_extra_info("peercert") or {}
    return stated(value for kind, value in found.get("subjectAltName", ()) if kind == "URI")


def misused(transport: asyncio.BaseTransport, purpose: str) -> str:
    """Why the dialler's certificate does not allow `purpose`; empty: it does."""
    if not speaks_tls(transport):
        return ""
    certificate = peer_certificate(transport)
    if certificate is None:
        return NO_ROLE
    if purpose == "member" and certificate.role != "node":
        return "a client's certificate is no member's; make one with cubecast certs node"
    return ""


# -- refusals in words ----------------------------------------------------------------------------

NO_ROLE = "the certificate states no role and name of cubecast; make one with cubecast certs"
UNEXPECTED_TLS = (
    "it speaks TLS, and this node does not; set tls_ca, tls_cert and tls_key here, or none there"
)
RENEW = "make a new one with cubecast certs"
SET_UP = "set tls_ca, tls_cert and tls_key there, or none of them here"

ALERTS = {
    "CERTIFICATE_EXPIRED": f"our certificate has expired; {RENEW}",
    "CERTIFICATE_REVOKED": f"our certificate is revoked; {RENEW}",
    "CERTIFICATE_REQUIRED": "we showed no certificate; set tls_cert and tls_key",
    "UNKNOWN_CA": "our certificate is of a CA that is not in its tls_ca; add it there",
    "UNSUPPORTED_CERTIFICATE": "our certificate is of the wrong role, "
    "as a client's is for a node; make one with cubecast certs node",
    "BAD_CERTIFICATE": f"our certificate is damaged; {RENEW}",
    "CERTIFICATE_UNKNOWN": f"our certificate is not accepted; {RENEW}",
    "PROTOCOL_VERSION": "it does not speak TLS 1.3",
}
"""What a peer's alert says of us, by the end of its name in OpenSSL."""

VERIFY = {
    3: "the CA of its certificate has no list in tls_crl; add one for each CA of tls_ca",
    9: "its certificate is not valid yet; compare the clocks of both machines",
    10: f"its certificate has expired; {RENEW} there",
    12: "the list of its CA in tls_crl has expired; write a new one with cubecast certs revoke",
    18: "its certificate is signed by itself; tls_ca here must have its CA",
    19: "its certificate is of a CA that is not in tls_ca here",
    20: "its certificate is of a CA that is not in tls_ca here",
    21: "its certificate is of a CA that is not in tls_ca here",
    23: f"its certificate is revoked; {RENEW} there if its holder is still welcome",
    26: "its certificate is of the wrong role, as a client's is for a node",
}
"""Why we do not accept a peer's certificate, by OpenSSL's number of the reason."""

PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE")


def in_words(error: ssl.SSLError) -> tuple[bool, str]:
    """Whether the peer refused us (else we it), and why, with what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        known = VERIFY.get(error.verify_code)
        return False, known or f"its certificate is not valid: {error.verify_message}"
    reason = (error.reason or "").upper().replace(" ", "_")
    if "ALERT" in reason:
        for ending, words in ALERTS.items():
            if reason.endswith(f"ALERT_{ending}"):
                return True, words
        return True, f"TLS alert {reason.lower().replace('_', ' ')}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return False, "it showed no certificate; set tls_cert and tls_key there"
    if reason in PLAIN:
        return False, f"it does not speak TLS; {SET_UP}"
    if reason in ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "NO_PROTOCOLS_AVAILABLE"):
        return False, "it does not speak TLS 1.3"
    return False, f"TLS failed: {error.reason or error}"

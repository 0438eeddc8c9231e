"""Certificates for tests, also those that no tool of ours would make."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from cubecast.net.security import authority as authority_module
from cubecast.net.security import tls_files
from cubecast.net.security.authority import Authority, create
from cubecast.net.security.tls import Role, Tls
from cubecast.net.security.tls_network import TlsNetwork


class Pki:
    """A CA of its own; `tls` names the files of one holder."""

    def __init__(self, folder: Path, days: int = 3650) -> None:
        self.folder = folder
        self.authority: Authority = create(folder, days=days)

    def issue(self, role: Role, *names: str, days: int = 365) -> None:
        for name in names:
            self.authority.issue(role, name, days=days, replace=True)

    def tls(self, name: str, believes: Pki | None = None, crl: bool = True) -> Tls:
        """The files of `name`, which believes this CA, or another one."""
        trust = (believes or self).folder
        own = self.folder
        lists = str(trust / "crl.pem") if crl else ""
        return Tls(str(trust / "ca.pem"), str(own / f"{name}.pem"), str(own / f"{name}.key"), lists)

    def both(self, other: Pki, folder: Path) -> tuple[str, str]:
        """Files with the CAs, and with the lists, of this and another."""
        for name in ("ca.pem", "crl.pem"):
            joined = (self.folder / name).read_bytes() + (other.folder / name).read_bytes()
            (folder / name).write_bytes(joined)
        return str(folder / "ca.pem"), str(folder / "crl.pem")


def shifted(days: float) -> type[datetime]:
    """A `datetime` whose clock is off by so many days."""

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(days=days)

    return Shifted


def issue_expired(pki: Pki, role: Role, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate whose last day was the day before yesterday."""
    with monkeypatch.context() as patch:
        patch.setattr(authority_module, "datetime", shifted(-3))
        pki.authority.issue(role, name, days=1, replace=True)


def issue_without_role(pki: Pki, name: str) -> None:
    """A sound certificate, of a web server say, that states no role of ours."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    ca = pki.authority
    builder = (
        authority_module._builder(subject, ca.certificate.subject, key.public_key(), 30)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("example.org")]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca._key().public_key()),
            critical=False,
        )
    )
    certificate = builder.sign(ca._key(), hashes.SHA256())
    (pki.folder / f"{name}.pem").write_bytes(authority_module._pem(certificate))
    (pki.folder / f"{name}.key").write_bytes(authority_module._pem_key(key))
    (pki.folder / f"{name}.key").chmod(0o600)


def careless_network(
    tls: Tls, monkeypatch: pytest.MonkeyPatch, role: Role | None = None
) -> TlsNetwork:
    """A network that does not look at its own certificate: what a peer makes of it is tested."""
    with monkeypatch.context() as patch:
        patch.setattr(tls_files, "_check_issuer", lambda *_: None)
        patch.setattr(tls_files, "_lists", lambda *_: ())
        patch.setattr(tls_files, "_ours", lambda *_: None)
        patch.setattr(tls_files.TlsFiles, "_warn_of_end", lambda _: None)
        return TlsNetwork(tls, role)


def bare_context(tls: Tls, shows: bool = True) -> ssl.SSLContext:
    """A dialler by Python's ssl alone; without a certificate if it `shows` none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(tls.ca)
    if shows:
        context.load_cert_chain(tls.cert, tls.key)
    return context

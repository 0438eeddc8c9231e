"""A CA in a directory: makes certificates for nodes and clients, revokes them, lists them.

For development and small clusters: a user who can read the directory can take any identity in the
cluster.  Its files:

    ca.pem, ca.key         the CA; nodes and clients get ca.pem alone
    crl.pem                the list of revoked certificates
    NAME.pem, NAME.key     what a node or client is given
    issued/NAME-SERIAL.pem each certificate that was made and has not expired, for revocation

Keys are ECDSA on P-256: RFC 8446, 9.1 has every implementation of TLS 1.3 accept it, where
Ed25519 is optional and missing from builds that are restricted to approved algorithms.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cubecast.errors import CubecastError
from cubecast.net.security.tls import NAME, Certificate, Role
from cubecast.net.security.tls_files import statement

CA_DAYS = 3650
DAYS = 365
BACKDATED = timedelta(minutes=5)
"""Certificates are valid from a little before they are made: clocks differ."""
RESERVED = ("ca", "crl", "issued")
_label = re.compile(r"[0-9A-Za-z*]([0-9A-Za-z._-]{0,252})", re.ASCII).fullmatch
_name = re.compile(NAME, re.ASCII).fullmatch


class AuthorityError(CubecastError):
    """A certificate cannot be made, found or revoked; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Issued:
    """One certificate of the directory."""

    certificate: Certificate
    serial: int
    begins: datetime
    ends: datetime
    hosts: tuple[str, ...]
    revoked: bool
    current: bool
    """Whether it is the one in NAME.pem; else it was replaced."""

    @property
    def state(self) -> str:
        if self.revoked:
            return "revoked"
        if self.ends <= datetime.now(UTC):
            return "expired"
        return "valid" if self.current else "replaced, still valid"


def create(folder: Path, name: str = "cubecast CA", days: int = CA_DAYS) -> Authority:
    """Make a CA in a directory that has none."""
    if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
        raise AuthorityError(f"{folder} has a CA already; choose another directory")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "issued").mkdir(exist_ok=True)
    except OSError as error:
        raise AuthorityError(f"cannot make {folder}: {error.strerror or error}") from None
    key = ec.generate_private_key(ec.SECP256R1())
    # Two CAs in one bundle are told apart by their names, so each has one of its own.
    unique = f"{name} {x509.random_serial_number():x}"[: len(name) + 9]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, unique)])
    certificate = _sign(
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        ),
        key,
    )
    _write(folder / "ca.key", _pem_key(key), 0o600)
    _write(folder / "ca.pem", _pem(certificate), 0o644)
    authority = Authority(folder)
    authority.write_crl([])
    return authority


class Authority:
    """The CA of a directory; `AuthorityError` if there is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = self._load_certificate()

    def _load_certificate(self) -> x509.Certificate:
        path = self.folder / "ca.pem"
        try:
            return x509.load_pem_x509_certificate(path.read_bytes())
        except FileNotFoundError:
            raise AuthorityError(
                f"{self.folder} has no CA; make one: cubecast certs init {self.folder}"
            ) from None
        except OSError as error:
            raise AuthorityError(f"cannot read {path}: {error.strerror or error}") from None
        except ValueError:
            raise AuthorityError(f"{path} is no certificate") from None

    def _key(self) -> ec.EllipticCurvePrivateKey:
        path = self.folder / "ca.key"
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), None)
        except OSError as error:
            raise AuthorityError(f"cannot read {path}: {error.strerror or error}") from None
        except (ValueError, TypeError):
            raise AuthorityError(f"{path} is no private key, or an encrypted one") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            key.public_key() != self.certificate.public_key()
        ):
            raise AuthorityError(f"{path} is not the key of {self.folder / 'ca.pem'}")
        return key

    # -- making ------------------------------------------------------------------------------------

    def issue(
        self,
        role: Role,
        name: str,
        hosts: Iterable[str] = (),
        days: int = DAYS,
        replace: bool = False,
    ) -> Issued:
        """Make a certificate and its key."""
        _check_name(name)
        path = self.folder / f"{name}.pem"
        if path.exists() and not replace:
            raise AuthorityError(f"{path} exists; --replace makes a new certificate and key")
        if days < 1:
            raise AuthorityError(f"--days must be at least 1, not {days}")
        stated, signer = Certificate(role, name), self._key()
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self.certificate.subject, key.public_key(), days)
        ends = datetime.now(UTC) + timedelta(days=days)
        if ends > self.certificate.not_valid_after_utc:
            left = (self.certificate.not_valid_after_utc - datetime.now(UTC)).days
            raise AuthorityError(f"the CA itself expires in {left} days; --days must be below that")
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role == "node":  # a node is dialled, and dials
            uses.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        names = [x509.UniformResourceIdentifier(stated.uri), *map(_host, hosts)]
        certificate = _sign(
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                critical=False,
            ),
            signer,
        )
        self._forget_expired()
        record = self.folder / "issued" / f"{name}-{certificate.serial_number:x}.pem"
        _write(record, _pem(certificate), 0o644)
        _write(self.folder / f"{name}.key", _pem_key(key), 0o600)
        _write(path, _pem(certificate), 0o644)
        return self._described(certificate, set())

    # -- revoking ----------------------------------------------------------------------------------

    def revoke(self, name: str) -> list[Issued]:
        """Put every certificate of a name that has not expired on the list."""
        revoked = self._revoked()
        found = [one for one in self.issued() if one.certificate.name == name]
        if not found:
            raise AuthorityError(f"{self.folder} has made no certificate for {name!r}")
        fresh = [one for one in found if not one.revoked and one.state != "expired"]
        if not fresh:
            raise AuthorityError(f"the certificates of {name!r} are revoked or expired already")
        now = datetime.now(UTC)
        alive = {one.serial for one in self.issued()}
        entries = [entry for entry in revoked.values() if entry.serial_number in alive]
        for one in fresh:
            builder = x509.RevokedCertificateBuilder().serial_number(one.serial)
            entries.append(builder.revocation_date(now).build())
        self.write_crl(entries)
        self._forget_expired()
        return [one for one in self.issued() if one.certificate.name == name]

    def write_crl(self, entries: Iterable[x509.RevokedCertificate]) -> None:
        """Write the list anew; it is valid as long as the CA, after which no peer is accepted."""
        key, now = self._key(), datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - BACKDATED)
            .next_update(self.certificate.not_valid_after_utc)
            .add_extension(x509.CRLNumber(int(now.timestamp() * 1e6)), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()),
                critical=False,
            )
        )
        for entry in entries:
            builder = builder.add_revoked_certificate(entry)
        crl = builder.sign(key, hashes.SHA256())
        _write(self.folder / "crl.pem", crl.public_bytes(serialization.Encoding.PEM), 0o644)

    def _revoked(self) -> dict[int, x509.RevokedCertificate]:
        path = self.folder / "crl.pem"
        try:
            crl = x509.load_pem_x509_crl(path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise AuthorityError(f"cannot read {path}: {error.strerror or error}") from None
        except ValueError:
            raise AuthorityError(f"{path} is no list of revoked certificates") from None
        return {entry.serial_number: entry for entry in crl}

    # -- listing -----------------------------------------------------------------------------------

    def issued(self) -> list[Issued]:
        """All certificates on record, by name, the latest last."""
        revoked = set(self._revoked())
        found = [self._described(one, revoked) for _, one in self._records()]
        return sorted(found, key=lambda one: (one.certificate.name, one.begins, one.current))

    def _records(self) -> Iterator[tuple[Path, x509.Certificate]]:
        for path in sorted((self.folder / "issued").glob("*.pem")):
            try:
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
            except (OSError, ValueError):
                continue
            if statement(certificate) is not None:
                yield path, certificate

    def _described(self, certificate: x509.Certificate, revoked: set[int]) -> Issued:
        stated = statement(certificate)
        assert stated is not None
        try:
            held = (self.folder / f"{stated.name}.pem").read_bytes()
        except OSError:
            held = b""
        return Issued(
            stated,
            certificate.serial_number,
            certificate.not_valid_before_utc,
            certificate.not_valid_after_utc,
            _hosts(certificate),
            certificate.serial_number in revoked,
            held == _pem(certificate),
        )

    def _forget_expired(self) -> None:
        """Delete the records of expired certificates, but for those still in NAME.pem."""
        for path, certificate in list(self._records()):
            one = self._described(certificate, set())
            if one.state == "expired" and not one.current:
                path.unlink(missing_ok=True)


# -- parts of certificates ------------------------------------------------------------------------


def _check_name(name: str) -> None:
    if _name(name) is None or name.lower() in RESERVED:
        raise AuthorityError(
            f"{name!r} cannot be a name: 1 to 64 letters, digits, '.', '_', '@' and '-', "
            f"not {' or '.join(RESERVED)}"
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        name = host.encode("idna").decode()
    except UnicodeError:
        name = ""
    if _label(name) is None:
        raise AuthorityError(f"{host!r} is no host: a name or an address without a port")
    return x509.DNSName(name)


def _hosts(certificate: x509.Certificate) -> tuple[str, ...]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return (*names.get_values_for_type(x509.DNSName), *addresses)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    """A CA signs certificates and lists; other holders sign handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs, key_cert_sign=signs, crl_sign=signs,
        content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file as a whole: a reader gets the old one or the new one."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.chmod(temporary, mode)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise AuthorityError(f"cannot write {path}: {error.strerror or error}") from None

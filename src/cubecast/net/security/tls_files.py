"""The files of TLS: read, checked with words that say what to do, and read again when they change.

Invariants:

1. The files in use are complete and consistent: certificate, key, CAs and lists of one reading.
2. A change that cannot be used is logged once and changes nothing; the next change is tried again.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from cubecast.errors import ConfigError
from cubecast.net.security.tls import ROLES, Certificate, Role, Tls, stated

if TYPE_CHECKING:
    from cryptography.x509 import Certificate as X509
    from cryptography.x509 import CertificateRevocationList as Crl

log = logging.getLogger("cubecast")

CHECK_S = 2.0
"""Files are looked at this often at most."""
WARN_BEFORE = timedelta(days=7)
"""A certificate that expires sooner is logged, once a day."""
MAX_FILE_BYTES = 8 * 1024 * 1024

Signature: TypeAlias = tuple[tuple[int, int, int] | None, ...]
_pem = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL).findall


@dataclass(frozen=True, slots=True)
class Material:
    """The result of one reading of the files."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    certificate: Certificate
    """The role and name of our certificate."""
    ends: datetime
    """When our certificate expires."""
    lists: tuple[Crl, ...]

    def revoked(self, der: bytes) -> bool:
        """Whether a certificate is on the list of its CA, or cannot be looked up."""
        from cryptography import x509

        if not self.lists:
            return False
        try:
            peer = x509.load_der_x509_certificate(der)
        except ValueError:  # OpenSSL takes what cryptography does not
            return True
        return any(
            crl.issuer == peer.issuer
            and crl.get_revoked_certificate_by_serial_number(peer.serial_number) is not None
            for crl in self.lists
        )


class TlsFiles:
    """The files of one node or client; `current` has what is in use.

    `ConfigError` in one line if they cannot be used to begin with.
    """

    def __init__(
        self, tls: Tls, role: Role | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tls = tls
        self._role = role
        self._clock = clock
        self._checked_at = clock()
        self._warned_on = datetime.min.replace(tzinfo=UTC)
        self._signature = _signature(tls)
        self._material = load(tls, role)
        _check_modes(tls)
        self._warn_of_end()

    def current(self) -> Material:
        """What is in use; at most every `CHECK_S` the files are looked at."""
        now = self._clock()
        if now - self._checked_at >= CHECK_S:
            self._checked_at = now
            self._check()
        return self._material

    def _check(self) -> None:
        signature = _signature(self._tls)
        if signature != self._signature:
            self._signature = signature
            try:
                self._material = load(self._tls, self._role)
            except ConfigError as error:
                log.error("the TLS files changed and are not used; the old ones are: %s", error)
            else:
                log.warning("the TLS files changed: new connections use the new ones")
                _check_modes(self._tls)
        self._warn_of_end()

    def _warn_of_end(self) -> None:
        now, ends = datetime.now(UTC), self._material.ends
        if ends - now < WARN_BEFORE and now - self._warned_on >= timedelta(days=1):
            self._warned_on = now
            log.warning(
                "our certificate %s expires on %s; %s", self._tls.cert, _day(ends),
                _renewal(self._material.certificate),
            )  # fmt: skip


def load(tls: Tls, role: Role | None = None) -> Material:
    """Read and check the files; `ConfigError` names the file and says what to do."""
    try:
        return _load(tls, role)
    except ConfigError:
        raise
    except Exception as error:  # a certificate can be odd in more ways than have names
        raise ConfigError(f"the files of TLS cannot be used: {error!r}") from None


def _load(tls: Tls, role: Role | None) -> Material:
    authorities = _certificates(tls.ca, "tls_ca")
    chain = _certificates(tls.cert, "tls_cert")
    ours = _ours(tls, chain[0], role)
    _check_key(tls, chain[0])
    _check_issuer(tls, chain[-1], authorities)
    lists = _lists(tls, authorities)
    return Material(
        _context(ssl.PROTOCOL_TLS_SERVER, tls),
        _context(ssl.PROTOCOL_TLS_CLIENT, tls),
        ours,
        chain[0].not_valid_after_utc,
        lists,
    )


def _context(protocol: ssl._SSLMethod, tls: Tls) -> ssl.SSLContext:
    """TLS 1.3 alone, both sides verified; no session is resumed past a check of certificates."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the role counts: see cubecast.net.security.tls
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if protocol is ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    try:
        context.load_verify_locations(tls.ca)
        context.load_cert_chain(tls.cert, tls.key, password=lambda: "")
        if tls.crl:
            context.load_verify_locations(tls.crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (ssl.SSLError, OSError, ValueError) as error:  # e.g. changed since it was checked
        raise ConfigError(f"tls_cert {tls.cert} cannot be used: {error}") from None
    return context


# -- single files ---------------------------------------------------------------------------------


def _read(path: str, key: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{key} cannot be read: {path}: {error.strerror or error}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{key} has more than {MAX_FILE_BYTES} bytes: {path}")
    return content


def _certificates(path: str, key: str) -> list[X509]:
    from cryptography import x509

    content = _read(path, key)
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise ConfigError(f"{key} has no certificate in PEM: {path}") from None


def _ours(tls: Tls, certificate: X509, role: Role | None) -> Certificate:
    """What our own certificate states, if it may be used now, and for this."""
    ours = statement(certificate)
    if ours is None:
        raise ConfigError(
            f"tls_cert states no role and name (a URI such as {Certificate('node', 'a').uri}): "
            f"{tls.cert}; make one with cubecast certs node"
        )
    if role is not None and ours.role != role:
        raise ConfigError(
            f"tls_cert is the {ours.role}'s certificate {ours.name!r}, and a {role} needs a "
            f"{role}'s: {tls.cert}; make one with cubecast certs {role}"
        )
    now = datetime.now(UTC)
    if certificate.not_valid_after_utc <= now:
        ended = _day(certificate.not_valid_after_utc)
        raise ConfigError(f"tls_cert expired on {ended}: {tls.cert}; {_renewal(ours)}")
    if certificate.not_valid_before_utc > now:
        begins = certificate.not_valid_before_utc.isoformat(timespec="seconds")
        raise ConfigError(f"tls_cert is valid from {begins} on only: {tls.cert}; check the clock")
    return ours


def _check_key(tls: Tls, certificate: X509) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _read(tls.key, "tls_key")
    try:
        private = load_pem_private_key(content, None)
    except TypeError:
        raise ConfigError(
            f"tls_key is encrypted, and cubecast asks for no passphrase: {tls.key}; "
            "store it without one, readable for the node's user alone"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"tls_key has no private key in PEM: {tls.key}") from None
    if private.public_key() != certificate.public_key():
        raise ConfigError(f"tls_key {tls.key} is not the key of tls_cert {tls.cert}")


def _check_issuer(tls: Tls, last: X509, authorities: list[X509]) -> None:
    """Raise `ConfigError` if peers would refuse our certificate because of its CA."""
    for authority in authorities:
        try:
            last.verify_directly_issued_by(authority)
        except Exception:  # cryptography raises several kinds: another name, key, signature
            continue
        if authority.not_valid_after_utc <= datetime.now(UTC):
            ended = _day(authority.not_valid_after_utc)
            raise ConfigError(
                f"the CA of tls_cert expired on {ended}: {tls.ca}; see cubecast certs init --help"
            )
        return
    raise ConfigError(f"tls_cert {tls.cert} is not signed by a CA in tls_ca {tls.ca}")


def _lists(tls: Tls, authorities: list[X509]) -> tuple[Crl, ...]:
    """The lists of revoked certificates: signed, and one for each CA, as TLS demands it."""
    from cryptography import x509

    if not tls.crl:
        return ()
    content = _read(tls.crl, "tls_crl")
    try:
        lists = tuple(x509.load_pem_x509_crl(one) for one in _pem(content))
    except ValueError:
        lists = ()
    if not lists:
        raise ConfigError(f"tls_crl has no list of revoked certificates in PEM: {tls.crl}")
    for authority in authorities:
        own = [crl for crl in lists if crl.issuer == authority.subject]
        name = authority.subject.rfc4514_string()
        signed = [crl for crl in own if _signed(crl, authority)]
        if not signed:
            raise ConfigError(
                f"tls_crl has no list signed by the CA {name} of tls_ca: {tls.crl}; "
                "put the crl.pem of each CA into it"
            )
        if all(crl.next_update_utc and crl.next_update_utc <= datetime.now(UTC) for crl in signed):
            raise ConfigError(
                f"the list of the CA {name} in tls_crl has expired: {tls.crl}; get a new one"
            )
    return lists


def _signed(crl: Crl, authority: X509) -> bool:
    try:
        return crl.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


def _check_modes(tls: Tls) -> None:
    try:
        mode = os.stat(tls.key).st_mode
    except OSError:  # it was there a moment ago, and will be looked at again
        return
    if stat.S_IMODE(mode) & 0o077:
        log.warning("others on this machine may read tls_key %s: chmod 600 it", tls.key)


def _signature(tls: Tls) -> Signature:
    """What changes with the files: which, how long, when written."""
    found: list[tuple[int, int, int] | None] = []
    for path in filter(None, (tls.ca, tls.cert, tls.key, tls.crl)):
        try:
            about = os.stat(path)
            found.append((about.st_ino, about.st_size, about.st_mtime_ns))
        except OSError:
            found.append(None)
    return tuple(found)


def statement(certificate: X509) -> Certificate | None:
    """What a certificate states; None: nothing of ours."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return None
    return stated(names.get_values_for_type(x509.UniformResourceIdentifier))


def _renewal(ours: Certificate) -> str:
    assert ours.role in ROLES
    return f"make a new one: cubecast certs {ours.role} {ours.name} --replace"


def _day(moment: datetime) -> str:
    return moment.date().isoformat()

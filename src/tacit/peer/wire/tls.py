"""TLS 1.3 with both certificates, pinned by the agreement.

Every process makes a P-256 key when it starts, which the site's identity signs; nothing of it is written to disk.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.errors import NetworkError
from tacit.peer.cards import UNREADABLE_CERTIFICATE, Card, verify
from tacit.peer.identity import Identity
from tacit.peer.wire import OLD_TLS_IS_OFF, SETTING, SUITES

LIFETIME = timedelta(days=365)
_CLOCKS_DIFFER = timedelta(days=1)


@dataclass(frozen=True)
class TlsKey:
    """A private key and its certificate, PEM."""

    private: bytes
    certificate: bytes


def tls_name(card: Card) -> str:
    """Return the name that a member's certificate has."""
    return f"{card.fingerprint[:32]}.peer.tacit"


def issue_tls_key(identity: Identity, *, lifetime: timedelta = LIFETIME) -> TlsKey:
    """Make a P-256 key, and a certificate for it that the identity signs."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), tls_name(identity.card), datetime.now(UTC)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = identity.issue(
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER + min(lifetime, timedelta(0)))
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return TlsKey(private, certificate.public_bytes(serialization.Encoding.PEM))


def require_tls_1_3() -> None:
    """Refuse to work where grpc was imported before this module, and would still agree to TLS 1.2."""
    if not OLD_TLS_IS_OFF:
        raise NetworkError(
            f"grpc was imported before Tacit's wire and would accept TLS 1.2; import tacit.peer.wire first, or set {SETTING}={SUITES}"
        )


def listening_credentials(key: TlsKey, cards: Iterable[Card]) -> grpc.ServerCredentials:
    """Return credentials of the end that listens: only these members, with certificates of their own, get through."""
    require_tls_1_3()
    pair = (key.private, key.certificate)
    return grpc.ssl_server_credentials([pair], root_certificates=_roots(cards), require_client_auth=True)


def dialling_credentials(key: TlsKey, card: Card) -> grpc.ChannelCredentials:
    """Return credentials of the end that dials: the other one must be this very member."""
    require_tls_1_3()
    return grpc.ssl_channel_credentials(_roots([card]), key.private, key.certificate)


def member_of(facts: dict[str, Iterable[bytes]], cards: dict[int, Card]) -> int:
    """Return which member is at the other end of a connection, by who signed its certificate; refuse everybody else.

    facts: what grpc knows about the connection, `auth_context()`.
    """
    if (version := b"".join(facts.get("ssl_tls_version", ()))) not in (b"TLSv1.3", b"TLS1_3"):
        raise NetworkError(
            f"a connection uses {version.decode('ascii', 'replace')[:20] or 'no TLS'} instead of TLS 1.3"
        )
    try:
        certificate = x509.load_pem_x509_certificate(b"".join(facts.get("x509_pem_cert", ())))
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        claimed = names.get_values_for_type(x509.DNSName)
    except UNREADABLE_CERTIFICATE:
        raise NetworkError("a connection shows no readable certificate") from None
    for agent, card in cards.items():
        signed = verify(bytes.fromhex(card.public_key), certificate.signature, certificate.tbs_certificate_bytes)
        if signed and claimed == [tls_name(card)]:
            return agent
    raise NetworkError("a connection shows a certificate that no member has signed for itself")


def _roots(cards: Iterable[Card]) -> bytes:
    return "".join(card.certificate for card in cards).encode()

"""How a live node is set up: the fields of its configuration, and the relations between them.

A default is either a fixed number, in its field, or a formula in `cubecast.net.settings.presets`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from cubecast.net.links.address import is_wildcard, parse_address
from cubecast.net.security.keys import check_secret
from cubecast.net.security.tls import Tls
from cubecast.net.settings.presets import preset_values
from cubecast.net.wire.packets import MAX_MESSAGES, MAX_PACKET
from cubecast.protocol.cluster.agreement import AgreementConfig
from cubecast.protocol.cluster.detector import DetectorConfig
from cubecast.protocol.config import Config

LARGEST_FRAME_BYTES = 4 * 1024 * 1024
"""A frame that has gathered this much and takes one more message still fits a packet."""

PARTS: dict[str, type[Config | DetectorConfig | AgreementConfig]] = {
    "protocol": Config,
    "detector": DetectorConfig,
    "epochs": AgreementConfig,
}
"""Fields of `NodeConfig` that have fields of their own; no two of all these have the same name."""


def _names(part: str) -> frozenset[str]:
    return frozenset(one.name for one in fields(PARTS[part]))


def _check_numbers(changes: dict[str, Any]) -> None:
    """TypeError, in one line, for a field of a part that is to be a number and is none."""
    for one in (one for kind in PARTS.values() for one in fields(kind)):
        value = changes.get(one.name, 0)
        if isinstance(value, int | float):
            continue
        unit = " of microseconds" if one.type == "Time" else ""
        raise TypeError(
            f"{one.name} must be a number{unit}, not {value!r:.80}; "
            "texts with units are for load_config"
        )


_LOCAL = preset_values("local")
"""The defaults that are no fixed numbers."""


def _local(part: str) -> Any:
    return PARTS[part](**{name: _LOCAL[name] for name in _names(part) & _LOCAL.keys()})


def local_protocol() -> Config:
    """Delays in microseconds for nodes on one machine or in one rack."""
    config: Config = _local("protocol")
    return config


def local_detector() -> DetectorConfig:
    """How long silent nodes on one machine or in one rack are waited for, in microseconds."""
    config: DetectorConfig = _local("detector")
    return config


def local_epochs() -> AgreementConfig:
    """How changes of such a cluster are agreed on, in microseconds."""
    config: AgreementConfig = _local("epochs")
    return config


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A live node's bounds; `protocol` holds those of the core, in microseconds and bytes.

    The relations between them are checked when one is made.
    """

    secret: str = field(default="", repr=False)
    """A peer that does not know it is refused; it is never sent.  With one, all data is sealed."""
    client_secret: str = field(default="", repr=False)
    """The secret of light clients, which cannot become members with it; empty: `secret`."""
    listen: str = "127.0.0.1:0"
    advertise: str = ""
    """The address told to others; empty: the one we listen on; without a port: the bound port."""
    protocol: Config = field(default_factory=local_protocol)
    detector: DetectorConfig = field(default_factory=local_detector)
    """When a silent node is taken for dead, in microseconds."""
    epochs: AgreementConfig = field(default_factory=local_epochs)
    """How long changes of the cluster wait for answers, in microseconds."""
    frame_bytes: int = 128 * 1024
    """Publications of one tick share a frame up to this size."""
    frame_messages: int = 1024
    queue_bytes: int = _LOCAL["queue_bytes"]
    """What a subscription may hold unread before its policy applies."""
    join_timeout_s: float = _LOCAL["join_timeout_s"]
    leave_timeout_s: float = _LOCAL["leave_timeout_s"]
    max_strangers: int = 256
    """Connections of neither a member nor a light client, at a time; one more and an old one is
    closed, silent ones first."""
    unread_bytes: int = _LOCAL["unread_bytes"]
    """What a peer may leave unread before its connection is closed: as many windows as a peer is
    sent streams at a time.  What was lost is sent again after it is back."""
    publish_timeout_s: float = _LOCAL["publish_timeout_s"]
    """A publish raises `NotSent` if no credit at all came back for this long."""
    max_clients: int = 1000
    """Light clients attached at a time; one more is refused."""
    client_subscriptions: int = 256
    """Subscriptions of one light client at a time."""
    client_bytes: int = 64 * 1024 * 1024
    """What one light client may make the node hold: unread messages of all its subscriptions,
    publications that are not taken, an answer.  Beyond, the policies of its subscriptions apply."""
    clients_bytes: int = 512 * 1024 * 1024
    """`client_bytes` for all clients together; each may hold `clients_bytes / max_clients`
    besides."""
    clients_topics: int = 65536
    """Topics that clients have used and the node has not forgotten; one client, by its name or
    else its host, may have half of them, and each `clients_topics / max_clients` besides."""
    client_silence_s: float = 60.0
    """A light client that is silent for so long is gone; clients send something thrice as often."""
    permissions: str = ""
    """A file of rules: which identities may publish and subscribe to which topics
    (docs/permissions.md); empty: all may do everything."""
    permissions_grace_s: float = 10.0
    """How much later than this node another one may have read a new file of permissions."""
    audit_log: str = ""
    """Where refusals are written, "-" for stderr; empty: to the logger "cubecast.audit", but for
    refused connections, which the node's log has."""
    metrics: str = ""
    """Where ``/metrics`` and ``/healthz`` are served, by HTTP and to all that reach it; ":9464",
    a port alone, is on the loopback.  Empty: nowhere.  ``/metrics`` needs prometheus-client."""
    trace_arrivals: bool = False
    """Record in the trace also in which order messages arrive, before they are put in order."""
    tls_ca: str = ""
    """With TLS instead of a secret: a file with the CAs that are believed; see `Tls`."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_crl: str = ""

    def __post_init__(self) -> None:
        for one in fields(self):
            if one.name.endswith(("_s", "_bytes", "_messages")):
                value = getattr(self, one.name)
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise TypeError(f"{one.name} must be a number, not {value!r:.80}")
                if not value > 0:
                    raise ValueError(f"{one.name} must be above 0, not {value}")
        if self.frame_bytes > LARGEST_FRAME_BYTES:
            raise ValueError(
                f"frame_bytes must be at most {LARGEST_FRAME_BYTES}, not {self.frame_bytes}"
            )
        if self.frame_messages > MAX_MESSAGES:
            raise ValueError(
                f"frame_messages must be at most {MAX_MESSAGES}, not {self.frame_messages}"
            )
        if self.clients_bytes < self.client_bytes:
            raise ValueError(
                f"clients_bytes must be at least client_bytes, {self.client_bytes}, "
                f"not {self.clients_bytes}"
            )
        if self.clients_topics < 1:
            raise ValueError(f"clients_topics must be at least 1, not {self.clients_topics}")
        if self.max_strangers < 1:
            raise ValueError(f"max_strangers must be at least 1, not {self.max_strangers}")
        if self.unread_bytes < 2 * MAX_PACKET:
            raise ValueError(
                f"unread_bytes must be at least two packets, {2 * MAX_PACKET}, "
                f"not {self.unread_bytes}"
            )
        check_secret("secret", self.secret)
        check_secret("client_secret", self.client_secret)
        if self.client_secret and self.client_secret == self.secret:
            raise ValueError("client_secret must differ from secret, or be empty")
        self._check_addresses()
        self._check_tls()

    @property
    def tls(self) -> Tls | None:
        """The files of TLS; None if the node does without."""
        if not self.tls_cert:
            return None
        return Tls(self.tls_ca, self.tls_cert, self.tls_key, self.tls_crl)

    def _check_tls(self) -> None:
        given = [name for name in ("tls_ca", "tls_cert", "tls_key") if getattr(self, name)]
        missing = [name for name in ("tls_ca", "tls_cert", "tls_key") if name not in given]
        for key in ("secret", "client_secret"):
            if given and getattr(self, key):
                raise ValueError(f"{key} and {given[0]} exclude each other: set one of them alone")
        if missing and (given or self.tls_crl):
            first = given[0] if given else "tls_crl"
            raise ValueError(f"{first} is set, so {' and '.join(missing)} must be set, too")

    def _check_addresses(self) -> None:
        for name in ("listen", "advertise", "metrics"):
            try:
                parse_address(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name} is {error}") from None
        if is_wildcard(self.advertise):
            raise ValueError(f"advertise must be dialled by others; {self.advertise!r} cannot be")
        if is_wildcard(self.listen) and not self.advertise:
            raise ValueError(
                f"listen is {self.listen!r}, which others cannot dial: set advertise as well"
            )

    @classmethod
    def preset(cls, name: str, **changes: Any) -> NodeConfig:
        """The values of a preset ("local", "lan" or "wan") with some changed.

        `changes` may name fields of `protocol`, `detector` and `epochs` beside those of
        `NodeConfig`; their times are numbers of microseconds.
        """
        _check_numbers(changes)
        values = {**preset_values(name), **changes}
        for part, kind in PARTS.items():
            names = _names(part)
            own = {key: values.pop(key) for key in list(values) if key in names}
            if part not in changes:
                values[part] = kind(**own)
            elif names & changes.keys():
                raise ValueError(f"{part} and single fields of it exclude each other")
        return cls(**values)

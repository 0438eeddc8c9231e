"""The metrics of a simulated run, as the papers define them.

Latency is the mean over all (message, subscriber) pairs of arrival or delivery minus the time
`publish` was called; the publisher's own delivery is left out ([J] 4, "Latency").  A false
positive is a publication received by a node that is not subscribed ([J] 4, metric 5).
"""

from __future__ import annotations

from collections import Counter

from cubecast.protocol.port import Time


class Meter:
    """Running sums of one run; the cost per message is a few additions."""

    def __init__(self) -> None:
        self.published_at: list[Time] = []
        self.messages: Counter[str] = Counter()
        self.receptions = 0
        self.reception_sum = 0
        self.false_positives = 0
        self.deliveries = 0
        self.delivery_sum = 0
        self.delivery_max = 0
        self.own_deliveries = 0

    def published(self, ident: int, now: Time) -> None:
        """Message `ident` was handed to the protocol."""
        assert ident == len(self.published_at)
        self.published_at.append(now)

    def received(self, body: tuple[int, ...], subscribed: bool, now: Time) -> None:
        """A publication arrived, at a subscriber or elsewhere."""
        if not subscribed:
            self.false_positives += 1
            return
        published_at = self.published_at
        for ident in body:
            self.reception_sum += now - published_at[ident]
        self.receptions += len(body)

    def delivered(self, ident: int, own: bool, now: Time) -> None:
        """The application was handed message `ident`."""
        if own:
            self.own_deliveries += 1
            return
        latency = now - self.published_at[ident]
        self.deliveries += 1
        self.delivery_sum += latency
        if latency > self.delivery_max:
            self.delivery_max = latency

    def summary(self) -> dict[str, float]:
        """The metrics under the names the command line prints."""
        received = max(self.receptions, 1)
        delivered = max(self.deliveries, 1)
        return {
            "latency_mean": self.delivery_sum / delivered,
            "latency_max": float(self.delivery_max),
            "reception_mean": self.reception_sum / received,
            "delay_mean": self.delivery_sum / delivered - self.reception_sum / received,
            "pub_messages": float(self.messages["pub"]),
            "control_messages": float(sum(n for kind, n in self.messages.items() if kind != "pub")),
            "false_positives": float(self.false_positives),
            "publications": float(len(self.published_at)),
            "deliveries": float(self.deliveries),
        }

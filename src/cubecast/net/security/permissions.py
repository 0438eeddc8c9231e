"""Permissions: which identities may publish and subscribe to which topics, by rules.

Theory of operation.  An identity is a kind (`client` or `node`) and the name that it proved, which
is empty if it holds only the cluster's secret.  Every rule names identities and what they may do.
The rules of an identity add up; what none of them allows is refused, and what one of them denies is
refused whatever the others allow.

1. A topic may be published to if a `publish` pattern of the identity matches it and no `deny`
   pattern does.
2. A topic or pattern may be subscribed to if one `subscribe` pattern of the identity contains it,
   that is, matches every topic that it matches, and no `deny` pattern matches any of these.  So a
   subscription is allowed as a whole or refused: it never misses topics silently.
3. ``{name}`` in a pattern stands for the identity's name.  Of an identity without a name, or with
   a name that is no single level of a topic, such a pattern matches nothing.
4. The pattern ``*`` alone is every topic, also those that ``#`` does not match.

The rules never change after they were read (`permission_file`); a new file makes new ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from cubecast.protocol.port import Topic
from cubecast.protocol.subscriptions.patterns import Pattern, is_pattern

Kind = Literal["client", "node"]
NAME = "{name}"
ANY = "*"
MAX_IDENTITIES = 4096
"""Identities whose patterns are kept ready; one more and all are made anew as they come."""
NO_RULE = "no rule allows it"


class Identity(NamedTuple):
    """The origin of a request: a client or a node, and the name that it proved ("" if none)."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class PermissionVerdict(NamedTuple):
    """Whether the rules allow one request, and the rule that decides it."""

    allowed: bool
    why: str


@dataclass(frozen=True, slots=True)
class RuleSubject:
    """The identities that a rule is about: ``client:alice``, ``node:*.example.org``, ``client:``.

    ``*`` stands for any part of a name that is not empty as a whole: ``client:*`` are all clients
    with a name, ``client:`` those without.
    """

    text: str
    _kind: str = field(init=False, repr=False, compare=False)
    _name: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kind, colon, name = self.text.partition(":")
        if kind not in ("client", "node") or not colon:
            raise ValueError(
                f"must be client:NAME, client:*, node:NAME, node:* or, for those without a name, "
                f"client: or node:, not {self.text!r}"
            )
        if name != name.strip() or not (name.isprintable()):
            raise ValueError(f"{self.text!r} has a name with blanks around it or unprintable ones")
        parts = map(re.escape, name.split(ANY))
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_name", re.compile(".*".join(parts), re.DOTALL))

    def __call__(self, who: Identity) -> bool:
        """Whether `who` is one of these identities."""
        if who.kind != self._kind:
            return False
        if not who.name:
            return self.text == f"{self._kind}:"
        return self._name.fullmatch(who.name) is not None


@dataclass(frozen=True, slots=True)
class PermissionRule:
    """One rule of the file; `number` counts from 1."""

    number: int
    who: tuple[RuleSubject, ...]
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rule {self.number} ({', '.join(one.text for one in self.who)})"

    def is_about(self, who: Identity) -> bool:
        """Whether the rule names an identity."""
        return any(one(who) for one in self.who)


class Everything:
    """The pattern ``*`` of rules: also topics that begin with ``$``, which ``#`` does not match."""

    text = ANY

    def __call__(self, topic: Topic) -> bool:
        """It matches any topic."""
        return True

    def contains(self, other: Pattern) -> bool:
        """It contains any pattern."""
        return True

    def meets(self, other: Pattern) -> bool:
        """It has topics in common with any pattern."""
        return True


class Clause(NamedTuple):
    """A pattern of a rule, as it is for one identity."""

    rule: PermissionRule
    pattern: Pattern | Everything


@dataclass(frozen=True, slots=True)
class Grants:
    """All that the rules say of one identity."""

    publish: tuple[Clause, ...]
    subscribe: tuple[Clause, ...]
    deny: tuple[Clause, ...]


def pattern_for(text: str, name: str) -> Pattern | Everything | None:
    """The pattern of a rule for the identity `name`; None if it matches nothing for it."""
    if text == ANY:
        return Everything()
    if NAME not in text:
        return Pattern(text)
    if not name or "/" in name or "\0" in name or is_pattern(name):
        return None
    if name.startswith("$") and text.startswith(NAME):
        return None  # a name must not reach topics that wildcards exclude
    return Pattern(text.replace(NAME, name))


class Permissions:
    """The rules of a cluster, and the tokens by which its clients prove their names."""

    def __init__(
        self,
        rules: Sequence[PermissionRule],
        tokens: Mapping[str, str] | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        self.rules = tuple(rules)
        self.tokens: dict[str, str] = dict(tokens or {})
        self.files = tuple(files)
        """Where they were read."""
        self._grants: dict[Identity, Grants] = {}

    def __repr__(self) -> str:
        return f"<Permissions, {self}>"

    def __str__(self) -> str:
        return f"rules: {len(self.rules)}, tokens: {len(self.tokens)}"

    def grants(self, who: Identity) -> Grants:
        """Everything that the rules say of one identity."""
        found = self._grants.get(who)
        if found is None:
            if len(self._grants) >= MAX_IDENTITIES:
                self._grants.clear()
            about = [rule for rule in self.rules if rule.is_about(who)]
            found = self._grants[who] = Grants(
                _clauses([(rule, rule.publish) for rule in about], who.name),
                _clauses([(rule, rule.subscribe) for rule in about], who.name),
                _clauses([(rule, rule.deny) for rule in about], who.name),
            )
        return found

    def publish(self, who: Identity, topic: Topic) -> PermissionVerdict:
        """Whether an identity may publish to a topic (1)."""
        grants = self.grants(who)
        for clause in grants.deny:
            if clause.pattern(topic):
                return _denied(clause)
        for clause in grants.publish:
            if clause.pattern(topic):
                return _allowed(clause)
        return PermissionVerdict(False, NO_RULE)

    def subscribe(self, who: Identity, text: str) -> PermissionVerdict:
        """Whether an identity may subscribe to a topic or pattern (2)."""
        grants = self.grants(who)
        wanted = Pattern(text)
        allowed = next((one for one in grants.subscribe if one.pattern.contains(wanted)), None)
        if allowed is None:
            return PermissionVerdict(False, _nearly(grants, wanted))
        for clause in grants.deny:
            if clause.pattern.meets(wanted):
                return _denied(clause)
        return _allowed(allowed)

    def verdict(self, who: Identity, what: str, topic: str) -> PermissionVerdict:
        """Whether an identity may "publish" or "subscribe" to a topic, or "ask" about it."""
        if what == "publish":
            return self.publish(who, topic)
        return self.subscribe(who, topic) if what == "subscribe" else self.sees(who, topic)

    def sees(self, who: Identity, topic: Topic) -> PermissionVerdict:
        """Whether an identity may know of a topic: it may publish or subscribe to it."""
        verdict = self.publish(who, topic)
        return verdict if verdict.allowed else self.subscribe(who, topic)


def _clauses(
    texts: Sequence[tuple[PermissionRule, Sequence[str]]], name: str
) -> tuple[Clause, ...]:
    made = [(rule, pattern_for(text, name)) for rule, patterns in texts for text in patterns]
    return tuple(Clause(rule, pattern) for rule, pattern in made if pattern is not None)


def _allowed(clause: Clause) -> PermissionVerdict:
    return PermissionVerdict(True, f"{clause.rule} allows {clause.pattern.text!r}")


def _denied(clause: Clause) -> PermissionVerdict:
    return PermissionVerdict(False, f"{clause.rule} denies {clause.pattern.text!r}")


def _nearly(grants: Grants, wanted: Pattern) -> str:
    """Why a subscription is refused: of a pattern that is too wide, what is allowed of it."""
    if not is_pattern(wanted.text):
        return NO_RULE
    parts = [one.pattern.text for one in grants.subscribe if one.pattern.meets(wanted)]
    if not parts:
        return NO_RULE
    return f"no rule allows all of it, only {', '.join(map(repr, parts[:3]))}"

"""Permissions: what rules say, and how files of them are read."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import ConfigError
from cubecast.net.security.permission_file import read_permissions, token_line
from cubecast.net.security.permissions import Identity, PermissionRule, Permissions, RuleSubject
from cubecast.protocol.subscriptions.patterns import Pattern
from support.files import written

ALICE, BOB, NOBODY = (Identity("client", name) for name in ("alice", "bob", ""))


# -- patterns: against all topics of a small alphabet --------------------------------------------


def patterns_of(letters: str, levels: int) -> list[Pattern]:
    bodies = [
        "/".join(body)
        for length in range(1, levels + 1)
        for body in product([*letters, "$a", "", "+"], repeat=length)
    ]
    texts = [*bodies, *(f"{body}/#" for body in bodies), "#"]
    return [Pattern(text) for text in texts if text]


def test_containment_and_intersection_are_those_of_the_sets_of_topics() -> None:
    """A letter that no pattern has, and a level more than any, stand for all others."""
    letters = ["a", "$a", "", "z"]
    topics = ["/".join(body) for length in range(1, 4) for body in product(letters, repeat=length)]
    patterns = patterns_of("a", 2)
    matched = {
        one: sum(1 << index for index, topic in enumerate(topics) if one(topic)) for one in patterns
    }
    for one, other in product(patterns, repeat=2):
        assert one.contains(other) == (not matched[other] & ~matched[one]), (one, other)
        assert one.meets(other) == bool(matched[one] & matched[other]), (one, other)


# -- rules ---------------------------------------------------------------------------------------


def rules(*made: dict[str, Any]) -> Permissions:
    read = []
    for number, one in enumerate(made, 1):
        who = one.pop("who")
        names = [who] if isinstance(who, str) else who
        lists = {key: tuple(value) for key, value in one.items()}
        read.append(PermissionRule(number, tuple(map(RuleSubject, names)), **lists))
    return Permissions(read)


@pytest.mark.parametrize(
    ("pattern", "who", "matches"),
    [
        ("client:alice", ALICE, True),
        ("client:alice", BOB, False),
        ("client:alice", Identity("node", "alice"), False),
        ("client:*", ALICE, True),
        ("client:*", NOBODY, False),
        ("client:", NOBODY, True),
        ("client:", ALICE, False),
        ("client:al*", ALICE, True),
        ("client:*.org", Identity("client", "a.org"), True),
        ("client:*.org", Identity("client", "axorg"), False),
        ("node:*", Identity("node", "n1"), True),
        ("node:", Identity("node", ""), True),
        ("client:a.ice", ALICE, False),
        ("client:a:", NOBODY, False),
        ("client:a:", Identity("client", "a:"), True),
    ],
)
def test_a_rule_is_about_the_identities_that_it_names(
    pattern: str, who: Identity, matches: bool
) -> None:
    assert RuleSubject(pattern)(who) == matches


def test_rules_add_up_and_what_none_allows_is_refused() -> None:
    permissions = rules(
        {"who": "client:alice", "publish": ["chat/+"]},
        {"who": ["client:*", "client:"], "publish": ["hello"], "subscribe": ["chat/#"]},
    )
    assert permissions.publish(ALICE, "chat/1").allowed
    assert permissions.publish(ALICE, "hello").allowed
    assert permissions.publish(NOBODY, "hello").allowed
    assert not permissions.publish(BOB, "chat/1").allowed
    assert not permissions.publish(ALICE, "chat/1/aside").allowed
    assert not permissions.publish(Identity("node", "alice"), "chat/1").allowed
    assert permissions.publish(BOB, "chat/1").why == "no rule allows it"
    assert permissions.publish(ALICE, "chat/1").why == "rule 1 (client:alice) allows 'chat/+'"


def test_a_subscription_is_allowed_as_a_whole_or_refused() -> None:
    permissions = rules(
        {"who": "client:*", "subscribe": ["chat/#"]},
        {"who": "client:bob", "deny": ["chat/private/+"]},
    )
    assert permissions.subscribe(ALICE, "chat/+").allowed
    assert permissions.subscribe(ALICE, "chat/private/1").allowed
    assert not permissions.subscribe(ALICE, "#").allowed
    assert "only 'chat/#'" in permissions.subscribe(ALICE, "#").why
    assert permissions.subscribe(BOB, "chat/+").allowed
    refused = permissions.subscribe(BOB, "chat/#")
    assert refused == (False, "rule 2 (client:bob) denies 'chat/private/+'")
    assert not permissions.subscribe(BOB, "chat/private/1").allowed


def test_a_denial_wins_over_whatever_allows() -> None:
    permissions = rules(
        {"who": "client:*", "publish": ["#"], "deny": ["admin/#"]},
        {"who": "client:alice", "publish": ["admin/doors"]},
    )
    assert permissions.publish(ALICE, "doors").allowed
    assert not permissions.publish(ALICE, "admin/doors").allowed


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a+", "a\0b"])
def test_a_name_that_is_no_level_of_a_topic_opens_nothing(name: str) -> None:
    permissions = rules(
        {"who": ["client:*", "client:"], "publish": ["presence/{name}"], "subscribe": ["{name}/#"]}
    )
    who = Identity("client", name)
    for topic in ("presence/", "presence/a/b", "presence/x", f"presence/{name}", "x"):
        assert not permissions.publish(who, topic).allowed
    assert not permissions.subscribe(who, "x").allowed
    assert permissions.publish(ALICE, "presence/alice").allowed
    assert not permissions.publish(ALICE, "presence/bob").allowed


def test_a_name_does_not_lead_to_topics_that_wildcards_spare() -> None:
    permissions = rules({"who": "client:*", "publish": ["{name}/x", "#"]})
    assert not permissions.publish(Identity("client", "$order"), "$order/x").allowed


def test_a_star_is_every_topic_also_those_that_wildcards_spare() -> None:
    permissions = rules(
        {"who": "node:", "publish": ["*"], "subscribe": ["*"]},
        {"who": "client:*", "publish": ["#"], "subscribe": ["#"]},
        {"who": "client:bob", "deny": ["*"]},
    )
    for who, allowed in ((Identity("node", ""), True), (ALICE, False)):
        assert permissions.publish(who, "$order").allowed == allowed
        assert permissions.subscribe(who, "$order/#").allowed == allowed
        assert permissions.subscribe(who, "#").allowed
    assert not permissions.publish(BOB, "x").allowed
    assert not permissions.subscribe(BOB, "x").allowed


def test_a_client_sees_topics_it_may_publish_or_subscribe_to() -> None:
    permissions = rules({"who": "client:*", "publish": ["in"], "subscribe": ["out/#"]})
    seen = [topic for topic in ("in", "out/1", "other") if permissions.sees(ALICE, topic).allowed]
    assert seen == ["in", "out/1"]


# -- files ---------------------------------------------------------------------------------------

TOKEN = "0123456789abcdef" * 2


def test_a_file_is_read_with_the_tokens_that_it_names(tmp_path: Path) -> None:
    text = '[[rule]]\nwho = ["client:alice", "node:"]\npublish = ["chat/+"]\n'
    permissions = read_permissions(written(tmp_path, text, f'alice = "{TOKEN}"\n'))
    assert permissions.tokens == {"alice": TOKEN}
    assert permissions.publish(ALICE, "chat/1").allowed
    assert permissions.publish(Identity("node", ""), "chat/1").allowed


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "there is no [[rule]]"),
        ("rule = 3", "rule must be a list of tables"),
        ('[rule]\nwho = "client:a"', "write [[rule]]"),
        ("[[rule]]\npublish = []", "rule 1: who is missing"),
        ('[[rule]]\nwho = "client:a"', "rule 1: says nothing"),
        ("[[rule]]\nwho = []\npublish = []", "rule 1: who is empty"),
        ("[[rule]]\nwho = 3\npublish = []", "who must be a list of texts, not 3"),
        ('[[rule]]\nwho = "alice"\npublish = []', "who must be client:NAME"),
        ('[[rule]]\nwho = "clients:a"\npublish = []', "not 'clients:a'"),
        ('[[rule]]\nwho = "client: a"\npublish = []', "blanks"),
        ('[[rule]]\nwho = ["node:a", "node:a"]\npublish = []', "has 'node:a' twice"),
        ('[[rule]]\nwho = "node:a"\npublsh = []', "publsh is no key of permissions; did you mean"),
        ('[[rules]]\nwho = "node:a"', "did you mean 'rule'?"),
        ('[[rule]]\nwho = "node:a"\npublish = "a"', "rule 1: publish must be a list of texts"),
        ('[[rule]]\nwho = "node:a"\npublish = ["a/#/b"]', "publish: in 'a/#/b', # is not the last"),
        ('[[rule]]\nwho = "node:a"\nsubscribe = ["a+"]', "mixes a wildcard with text"),
        ('[[rule]]\nwho = "node:a"\ndeny = [""]', "deny: a topic must not be empty"),
        ('[[rule]]\nwho = "node:a"\ndeny = ["{nam}"]', "only {name} stands for something"),
        ('[[rule]]\nwho = "node:a"\npublish = ["a", "a"]', "publish has 'a' twice"),
        ('[tokens]\nalice = "x"', "tokens belong in a file of their own"),
        ('tokens_file = 3\n[[rule]]\nwho = "node:a"\npublish = []', "tokens_file must be"),
        ('tokens_file = "no"\n[[rule]]\nwho = "node:a"\npublish = []', "no: cannot be read"),
        ("who = ", "not TOML"),
    ],
)
def test_an_invalid_file_is_refused_in_a_line_that_names_it(
    tmp_path: Path, text: str, error: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_permissions(written(tmp_path, text))
    message = str(caught.value)
    assert error in message
    assert message.startswith(str(tmp_path))
    assert "\n" not in message


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ('alice = "short"', "alice has a token of 5 characters, and 32 are the least"),
        (f'alice = "{TOKEN}"\nbob = "{TOKEN}"', "alice and bob have the same token"),
        (f'alice = "{TOKEN}"\nalice = "{TOKEN}x"', "alice occurs twice, the second time in line 2"),
        (f'"a.b" = "{TOKEN}"\n"a.b" = "{TOKEN}x"', "a.b occurs twice, the second time in line 2"),
        (f'alice = "{TOKEN}"\nalice = """\n{TOKEN}x"""', "not TOML"),
        (f'a.b = "{TOKEN}"', "a is a table"),
        (f'"a/b" = "{TOKEN}"', "not 'a/b'"),
        ("alice = 3", "alice must be a text, not int"),
    ],
)
def test_tokens_that_cannot_be_meant_are_refused_and_never_shown(
    tmp_path: Path, tokens: str, error: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_permissions(written(tmp_path, '[[rule]]\nwho="node:"\npublish=["#"]', tokens))
    assert error in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_file_of_tokens_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, '[[rule]]\nwho="node:"\npublish=["#"]', f'alice = "{TOKEN}"')
    read_permissions(path)
    assert not caplog.records
    (tmp_path / "tokens.toml").chmod(0o644)
    read_permissions(path)
    assert "chmod 600" in caplog.text


def test_a_new_token_is_a_line_of_a_file_of_tokens(tmp_path: Path) -> None:
    lines = [token_line("alice"), token_line("a.b@example.org"), token_line("bob")]
    path = written(tmp_path, '[[rule]]\nwho="node:"\npublish=["#"]', "\n".join(lines))
    tokens = read_permissions(path).tokens
    assert list(tokens) == ["alice", "a.b@example.org", "bob"]
    assert len(set(tokens.values())) == 3
    with pytest.raises(ValueError, match="not 'a b'"):
        token_line("a b")

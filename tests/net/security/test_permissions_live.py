"""Permissions on real sockets: clients, nodes, members that keep to no rules, new rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import cubecast
from cubecast.errors import AttachError, ConfigError, NotAllowed
from cubecast.net.client.shell import ClientShell
from cubecast.net.node import shell as shell_module
from cubecast.net.node.node import Node
from cubecast.net.node.shell import Shell, shell_of
from cubecast.net.security import access
from cubecast.net.security.tls import tls_keys
from cubecast.net.settings.config import NodeConfig
from cubecast.testing import Cluster, on_virtual_time
from support.files import lines_of, written
from support.live import cluster, join, live, small_window, take
from support.tls_toys import Pki

ALL_NODES = '[[rule]]\nwho = ["node:", "node:*"]\npublish = ["#"]\nsubscribe = ["#"]\n'
UNNAMED = '[[rule]]\nwho = "client:"\npublish = ["in"]\nsubscribe = ["out/#"]\n'


async def for_ever(work: Callable[[], Awaitable[object]]) -> None:
    """Until it raises."""
    while True:
        await work()


async def publish_and_flush(client: cubecast.Client) -> None:
    await client.publish("in", "3")
    await client.flush()


@live
async def test_a_client_publishes_and_subscribes_where_it_may_and_nowhere_else(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, ALL_NODES + UNNAMED)
    log = tmp_path / "audit.jsonl"
    async with cluster(2, permissions=str(path), audit_log=str(log)) as nodes:
        first, second = nodes
        async with (
            cubecast.connect(first.address) as client,
            second.subscribe("#") as messages,
            client.subscribe("out/+") as heard,
        ):
            await client.publish("in", "1")
            with pytest.raises(NotAllowed) as caught:
                await client.publish("out/1", "2")
            assert (caught.value.topic, caught.value.what) == ("out/1", "publish")
            for topic in ("in", "#", "out", "other"):
                if topic == "out":  # out/# contains it
                    async with client.subscribe(topic):
                        continue
                with pytest.raises(NotAllowed) as caught:
                    await client.subscribe(topic).__aenter__()
                assert (caught.value.topic, caught.value.what) == (topic, "subscribe")
            await second.publish("out/1", "3")
            await second.publish("secret", "4")
            assert [(one.topic, one.payload) for one in await take(messages, 3)] == [
                ("in", b"1"), ("out/1", b"3"), ("secret", b"4"),
            ]  # fmt: skip
            assert (await anext(heard)).payload == b"3"
            assert set(await client.topics()) == {"in", "out", "out/1"}
            assert "standing" in await client.explain("in")
            for question in (client.explain, client.subscribers):
                with pytest.raises(NotAllowed, match="not allowed to ask about 'secret'"):
                    await question("secret")
            assert set(await client.members()) == {0, 1}
    told = {(line["who"], line["what"], line["topic"]) for line in lines_of(log)}
    assert told >= {
        ("client:", "publish", "out/1"),
        ("client:", "subscribe", "#"),
        ("client:", "ask", "secret"),
    }  # fmt: skip
    assert all(line["from"].startswith("127.0.0.1:") for line in lines_of(log))


@live
async def test_the_numbers_that_a_client_reads_name_no_topic_that_it_may_not_know(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, ALL_NODES + UNNAMED)
    async with (
        cluster(1, permissions=str(path)) as (node,),
        cubecast.connect(node.address) as client,
        node.subscribe("secret"),
        node.subscribe("#"),
        node.subscribe("out/1"),
    ):
        await node.publish("secret", "1")
        await node.publish("out/1", "1")
        while (stats := await client.stats()).published < 2:
            await asyncio.sleep(0.01)
        assert [one.topic for one in stats.topics] == ["out/1"]
        assert [one.topic for one in stats.subscriptions] == ["out/1"]
        assert (stats.topic_count, stats.subscription_count) == (2, 3)


@live
async def test_a_node_itself_may_do_what_the_rules_say(tmp_path: Path) -> None:
    path = written(tmp_path, '[[rule]]\nwho = "node:"\npublish = ["in"]\nsubscribe = ["out/#"]\n')
    async with cluster(1, permissions=str(path)) as (node,):
        await node.publish("in", "1")
        with pytest.raises(NotAllowed, match="not allowed to publish to 'out/1': no rule"):
            await node.publish("out/1", "1")
        with pytest.raises(NotAllowed, match="not allowed to subscribe to '#'"):
            node.subscribe("#")
        with pytest.raises(NotAllowed):
            node.on("in", print)
        async with node.subscribe("out/+"):
            pass


@live
async def test_a_client_hears_of_events_of_topics_that_it_may_know(tmp_path: Path) -> None:
    path = written(tmp_path, ALL_NODES + UNNAMED)
    async with (
        cluster(1, permissions=str(path)) as (node,),
        cubecast.connect(node.address) as client,
    ):
        events = client.events()
        await client.members()  # the node listens by now
        for topic in ("secret", "in", "out/1"):
            shell_of(node).tell(cubecast.Gap(topic, {}))
        assert [await anext(events) for _ in range(2)] == [
            cubecast.Gap("in", {}),
            cubecast.Gap("out/1", {}),
        ]


@live
async def test_a_full_disk_under_the_audit_delays_no_client(tmp_path: Path) -> None:
    path = written(tmp_path, ALL_NODES + UNNAMED)
    async with (
        cluster(1, permissions=str(path), audit_log="/dev/full") as (node,),
        cubecast.connect(node.address) as client,
    ):
        for number in range(100):
            with pytest.raises(NotAllowed):
                await client.publish(f"closed/{number}", "1")
            await client.publish("in", "2")
        while shell_of(node).audit.dropped < 100:
            await asyncio.sleep(0.005)
        assert shell_of(node).audit.count == 100


@live
async def test_a_bad_file_ends_the_start_of_a_node(tmp_path: Path) -> None:
    path = written(tmp_path, "[[rule]]\n")
    with pytest.raises(ConfigError, match="who is missing"):
        await join([], permissions=str(path))


@asynccontextmanager
async def mole_among(folder: Path, rules: str, honest: int) -> AsyncIterator[list[Node]]:
    """Nodes with rules, and one, the last, that keeps to none."""
    async with AsyncExitStack() as stack:
        path, log = written(folder, rules), folder / "audit.jsonl"
        nodes = await stack.enter_async_context(
            cluster(honest, permissions=str(path), audit_log=str(log))
        )
        await join(nodes, publish_timeout_s=0.5, leave_timeout_s=0.2)
        yield nodes


@live
async def test_a_publication_without_permission_is_dropped_at_the_first_hop(tmp_path: Path) -> None:
    """Honest nodes may subscribe, the mole may not publish there: no node delivers it."""
    rules = '[[rule]]\nwho = "node:"\npublish = ["open"]\nsubscribe = ["#"]\n'
    async with mole_among(tmp_path, rules, 3) as nodes:
        *honest, mole = nodes
        async with AsyncExitStack() as stack:
            heard = [
                await stack.enter_async_context(node.subscribe(topic))
                for node in honest
                for topic in ("closed", "open")
            ]
            for number in range(2):
                with pytest.raises(cubecast.NotSent):
                    await for_ever(lambda: mole.publish("closed", bytes(1_000_000), timeout=0.3))
                await mole.publish("open", str(number))
                await honest[0].publish("open", f"{number}!")
            for messages in heard[1::2]:
                payloads = {one.payload.decode() for one in await take(messages, 4)}
                assert payloads == {f"{n}{end}" for n in range(2) for end in ("", "!")}
            assert not any(messages.unread for messages in heard[::2])
            dropped = [node.explain("closed")["dropped"] for node in honest]
            assert any(access.DROPPED in one for one in dropped)  # type: ignore[operator]
            assert set(mole.members) == {0, 1, 2, 3}
    told = [line for line in lines_of(tmp_path / "audit.jsonl") if line["what"] == "publish"]
    assert {(line["who"], line["topic"]) for line in told} == {("node:", "closed")}
    assert any("node 3" in line["why"] for line in told)


@live
async def test_a_node_that_may_not_subscribe_is_not_counted_as_a_subscriber(tmp_path: Path) -> None:
    """It may publish there, and does; what others say there does not reach it."""
    rules = '[[rule]]\nwho = "node:"\npublish = ["#"]\nsubscribe = ["open"]\n'
    async with mole_among(tmp_path, rules, 2) as nodes:
        first, second, mole = nodes
        async with mole.subscribe("closed") as closed, mole.subscribe("open") as opened:
            for node in (first, second):
                receipt = await node.publish("closed", "not for the mole", receipt=True)
                assert receipt is not None
                await receipt.stable()
                assert shell_of(node).core.members("closed") == []
            await first.publish("open", "1")
            assert (await anext(opened)).payload == b"1"
            assert closed.unread == 0
        assert set(first.members) == {0, 1, 2}
    told = {(line["what"], line["topic"]) for line in lines_of(tmp_path / "audit.jsonl")}
    assert told == {("subscribe", "closed")}


@live
async def test_a_wave_for_a_topic_that_is_closed_to_its_origin_ends_at_the_first_hop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would fill the memory of all nodes with topics that are closed to it."""
    only = '[[rule]]\nwho = "node:mole"\npublish = ["open"]\nsubscribe = ["open"]\n'
    async with mole_among(tmp_path, ALL_NODES.replace(', "node:*"', "") + only, 4) as nodes:
        *honest, mole = nodes
        names = {mole.uid: "mole"}
        monkeypatch.setattr(shell_module, "name_of", lambda one: names.get(one.uid, ""))
        async with honest[3].subscribe("#") as messages:
            async with mole.subscribe("secret/1"), mole.subscribe("open"):
                await mole.publish("secret/2", "1")
            while sum(shell_of(node).audit.count for node in honest) < 2:
                await asyncio.sleep(0.005)
            await honest[1].publish("end", "")
            assert (await anext(messages)).topic == "end"
            assert set(shell_of(honest[3]).core.topics()) == {"open", "end"}
        assert set(honest[0].members) == {0, 1, 2, 3, 4}
    told = {(line["what"], line["topic"]) for line in lines_of(tmp_path / "audit.jsonl")}
    assert told == {("subscribe", "secret/1"), ("publish", "secret/2")}


@live
async def test_a_follower_of_a_pattern_is_no_subscriber_of_topics_closed_to_it(
    tmp_path: Path,
) -> None:
    """It becomes a member of a new topic by answering a wave, without a wave of its own."""
    rules = '[[rule]]\nwho = "node:"\npublish = ["#"]\nsubscribe = ["open/#"]\n'
    async with mole_among(tmp_path, rules, 2) as nodes:
        first, _, mole = nodes
        async with mole.subscribe("#") as messages:
            await first.publish("secret/1", "not for the mole")
            await first.publish("open/1", "for the mole")
            assert (await anext(messages)).topic == "open/1"
            assert shell_of(first).core.members("secret/1") == []
            assert messages.unread <= len("for the mole") + 16


@live
async def test_a_message_that_others_have_read_is_taken_so_that_the_topic_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules that differ, for a moment or for good: the strict node would wait for ever."""
    strict = '[[rule]]\nwho="node:answers"\npublish=["topic"]\n'
    strict += '[[rule]]\nwho=["node:", "node:*"]\nsubscribe=["topic"]\n'
    path, log = written(tmp_path, strict), tmp_path / "audit.jsonl"
    async with cluster(2) as nodes:
        await join(nodes, permissions=str(path), audit_log=str(log))
        asks, answers, strictest = nodes
        names = {answers.uid: "answers", asks.uid: "asks"}
        monkeypatch.setattr(shell_module, "name_of", lambda one: names.get(one.uid, ""))
        async with answers.subscribe("topic") as heard, strictest.subscribe("topic") as late:
            await asks.publish("topic", "question")
            assert (await anext(heard)).payload == b"question"
            while not strictest.explain("topic")["dropped"]:
                await asyncio.sleep(0.005)
            assert late.unread == 0
            await answers.publish("topic", "answer")
            assert [one.payload for one in await take(late, 2)] == [b"question", b"answer"]
    assert [line["who"] for line in lines_of(log)][:1] == ["node:asks"]


# -- new rules -----------------------------------------------------------------------------------


def replace_file(path: Path, text: str) -> None:
    """As one does it where others read: all at once."""
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    draft.rename(path)


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOOK_S", 0.01)


@pytest.mark.usefixtures("_looks_often")
@live
async def test_new_rules_hold_for_open_sessions_and_for_the_node(tmp_path: Path) -> None:
    path = written(tmp_path, ALL_NODES + UNNAMED)
    async with (
        cluster(1, permissions=str(path), permissions_grace_s=GRACE_S) as (node,),
        cubecast.connect(node.address) as client,
        client.subscribe("out/+") as closed,
        client.subscribe("out/1") as kept,
        node.subscribe("#") as own,
    ):
        await client.publish("in", "1")
        await node.publish("out/1", "2")
        assert (await anext(closed)).payload == b"2"
        fewer = '[[rule]]\nwho = "client:"\nsubscribe = ["out/1"]\n'
        node_too = '[[rule]]\nwho = "node:"\npublish = ["out/1"]\nsubscribe = ["out/#"]\n'
        replace_file(path, fewer + node_too)
        with pytest.raises(NotAllowed, match="only 'out/1'"):
            await anext(closed)
        with pytest.raises(NotAllowed, match="not allowed to publish to 'in'"):
            await for_ever(lambda: publish_and_flush(client))
        with pytest.raises(NotAllowed, match="not allowed to publish to 'in'"):
            await client.publish("in", "4")
        with pytest.raises(NotAllowed, match="not allowed to publish to 'in'"):
            await node.publish("in", "5")
        await node.publish("out/1", "6")
        assert [(await anext(kept)).payload for _ in range(2)] == [b"2", b"6"]
        with pytest.raises(NotAllowed, match="not allowed to subscribe to '#'"):
            await for_ever(lambda: anext(own))
        replace_file(path, ALL_NODES + UNNAMED)
        await until_allowed(lambda: client.publish("in", "7"))
        await node.publish("in", "8")


@pytest.mark.usefixtures("_looks_often")
@live
async def test_a_subscription_is_checked_again_when_it_is_entered(tmp_path: Path) -> None:
    path = written(tmp_path, ALL_NODES)
    async with cluster(1, permissions=str(path)) as (node,):
        early = node.subscribe("closed")
        replace_file(path, ALL_NODES + '[[rule]]\nwho = "node:"\ndeny = ["closed"]\n')
        with pytest.raises(NotAllowed):
            await for_ever(lambda: asyncio.sleep(0.005, node.subscribe("closed")))
        with pytest.raises(NotAllowed, match="denies 'closed'"):
            await early.__aenter__()


@pytest.mark.usefixtures("_looks_often")
@live
async def test_a_packet_that_is_half_published_when_the_rules_change_is_not_called_unsent(
    tmp_path: Path,
) -> None:
    free = '[[rule]]\nwho = ["client:", "node:"]\npublish = ["in"]\nsubscribe = ["in"]\n'
    path = written(tmp_path, free)
    config = {"permissions": str(path), "protocol": small_window(), "leave_timeout_s": 0.2}
    async with (
        cluster(2, **config) as (node, other),  # type: ignore[arg-type]
        other.subscribe("in", queue_bytes=1) as slow,
    ):
        shell = ClientShell()
        await shell.attach(node.address, 10.0)
        client = shell.client
        await client.publish("in", "first")
        for _ in range(50):
            await client.publish("in", bytes(1000))
        while not shell_of(node).publishing.blocked("in"):
            await asyncio.sleep(0.005)
        replace_file(path, free.replace('publish = ["in"]\n', 'publish = ["out"]\n'))
        while not shell_of(node).publishing._revoked:
            await asyncio.sleep(0.005)
        reading = asyncio.create_task(for_ever(lambda: anext(slow)))
        with pytest.raises(cubecast.Unknown):
            await client.flush()
        reading.cancel()
        await client.close(flush=False)


GRACE_S = 0.3


@pytest.mark.usefixtures("_looks_often")
@live
async def test_messages_published_before_a_right_was_withdrawn_arrive(tmp_path: Path) -> None:
    free = '[[rule]]\nwho = "node:"\npublish = ["in"]\nsubscribe = ["in"]\n'
    path = written(tmp_path, free)
    async with (
        cluster(2, permissions=str(path), protocol=small_window()) as (node, other),
        other.subscribe("in", queue_bytes=1) as slow,
    ):
        publishing = [asyncio.create_task(node.publish("in", bytes(1000))) for _ in range(20)]
        while not shell_of(node).publishing.blocked("in"):
            await asyncio.sleep(0.005)
        replace_file(path, free.replace('publish = ["in"]\n', 'publish = ["out"]\n'))
        while not shell_of(node).publishing._revoked or not shell_of(other).access._former:  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
        assert len(await take(slow, 20)) == 20
        await asyncio.gather(*publishing)
        with pytest.raises(NotAllowed):
            await node.publish("in", "now")


@pytest.mark.usefixtures("_looks_often")
@live
async def test_a_node_uses_a_new_right_when_the_others_know_of_it(tmp_path: Path) -> None:
    """One node has read the new file and the other has not: neither is deaf or blocked."""
    late, early = tmp_path / "late", tmp_path / "early"
    old = '[[rule]]\nwho = "node:"\npublish = ["other"]\n'
    new = old + '[[rule]]\nwho = "node:"\npublish = ["topic"]\nsubscribe = ["topic"]\n'
    paths = []
    for folder in (late, early):
        folder.mkdir()
        paths.append(written(folder, old))
    async with cluster(1, permissions=str(paths[0]), permissions_grace_s=GRACE_S) as nodes:
        await join(nodes, permissions=str(paths[1]), permissions_grace_s=GRACE_S)
        first, second = nodes
        replace_file(paths[1], new)
        while not shell_of(second).access._former:  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
        with pytest.raises(NotAllowed, match=r"but only 0.3 s after it was read"):
            second.subscribe("topic")
        replace_file(paths[0], new)
        messages = await until_allowed(lambda: second.subscribe("topic").__aenter__())
        await until_allowed(lambda: first.publish("topic", "1"))
        assert (await anext(messages)).payload == b"1"
        await messages.close()


T = TypeVar("T")


async def until_allowed(work: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await work()
        except NotAllowed:
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("_looks_often")
@live
async def test_a_damaged_file_is_told_of_and_the_old_rules_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, ALL_NODES + UNNAMED)
    async with (
        cluster(1, permissions=str(path)) as (node,),
        cubecast.connect(node.address) as client,
        client.subscribe("out/+"),
    ):
        for broken in ("", "[[rule]", "[[rule]]\nwhom = 3\n"):
            replace_file(path, broken)
            while "the permissions stay as they were" not in caplog.text:
                await asyncio.sleep(0.005)
            assert str(path) in caplog.text
            caplog.clear()
            await client.publish("in", "1")
        path.unlink()
        while "No such file" not in caplog.text:
            await asyncio.sleep(0.005)
        await client.publish("in", "1")
        with pytest.raises(NotAllowed):
            await client.publish("out/1", "1")
        assert caplog.text.count("stay as they were") == 1


# -- clients with names ---------------------------------------------------------------------------

SECRET = "a secret of the members"
TOKENS = {name: f"{name} has a token of this many characters" for name in ("alice", "bob")}
NAMED = """
[[rule]]
who = "client:*"
publish = ["presence/{name}"]
subscribe = ["presence/#"]

[[rule]]
who = "client:alice"
publish = ["chat"]
"""


def tokens_of(tokens: dict[str, str]) -> str:
    return "".join(f'{name} = "{token}"\n' for name, token in tokens.items())


@live
async def test_a_client_with_a_token_has_the_permissions_of_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, ALL_NODES + NAMED, tokens_of(TOKENS))
    log = tmp_path / "audit.jsonl"
    async with cluster(2, secret=SECRET, permissions=str(path), audit_log=str(log)) as nodes:
        first, second = nodes
        async with (
            cubecast.connect(first.address, name="alice", secret=TOKENS["alice"]) as alice,
            cubecast.connect(second.address, name="bob", secret=TOKENS["bob"]) as bob,
            cubecast.connect(second.address, secret=SECRET) as somebody,
            bob.subscribe("presence/+") as presence,
        ):
            await alice.publish("presence/alice", "here")
            assert (await anext(presence)).payload == b"here"
            await alice.publish("chat", "hello")
            for client, topic in (
                (alice, "presence/bob"),
                (bob, "presence/alice"),
                (bob, "chat"),
                (somebody, "presence/"),
                (somebody, "chat"),
            ):
                with pytest.raises(NotAllowed):
                    await client.publish(topic, "forged")
            with pytest.raises(NotAllowed):
                await somebody.subscribe("presence/+").__aenter__()
            await bob.publish("presence/bob", "here, too")
            assert (await anext(presence)).topic == "presence/bob"
    told = {(line["who"], line["topic"]) for line in lines_of(log) if line["what"] == "publish"}
    assert told == {
        ("client:alice", "presence/bob"),
        ("client:bob", "presence/alice"),
        ("client:bob", "chat"),
        ("client:", "presence/"),
        ("client:", "chat"),
    }


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("alice", TOKENS["bob"]),
        ("alice", "x" * 32),
        ("alice", SECRET),
        ("carol", TOKENS["alice"]),
        ("", TOKENS["alice"]),
    ],
)
@live
async def test_a_client_without_the_token_of_a_name_cannot_use_the_name(
    tmp_path: Path, name: str, secret: str
) -> None:
    path = written(tmp_path, ALL_NODES + NAMED, tokens_of(TOKENS))
    async with cluster(1, secret=SECRET, permissions=str(path)) as (node,):
        with pytest.raises(cubecast.AttachError):
            async with cubecast.connect(node.address, name=name, secret=secret):
                raise AssertionError("it was let in")


@live
async def test_a_token_does_not_make_a_member(tmp_path: Path) -> None:
    path = written(tmp_path, ALL_NODES + NAMED, tokens_of(TOKENS))
    async with cluster(1, secret=SECRET, permissions=str(path)) as (node,):
        with pytest.raises(cubecast.JoinError):
            async with cubecast.join(node.address, secret=TOKENS["alice"]):
                raise AssertionError("it was let in")


@pytest.mark.usefixtures("_looks_often")
@live
async def test_new_tokens_count_and_withdrawn_ones_end_their_sessions(tmp_path: Path) -> None:
    path = written(tmp_path, ALL_NODES + NAMED, tokens_of(TOKENS))
    async with cluster(1, permissions=str(path)) as (node,):
        where = node.address
        async with (
            cubecast.connect(where, name="alice", secret=TOKENS["alice"]) as alice,
            cubecast.connect(where, name="bob", secret=TOKENS["bob"]) as bob,
            alice.subscribe("presence/#") as messages,
        ):
            carol = {"carol": "carol has a token of this many characters"}
            bobs = {"bob": TOKENS["bob"]}
            replace_file(tmp_path / "tokens.toml", tokens_of({**bobs, **carol}))
            with pytest.raises(cubecast.Closed, match="its token was withdrawn"):
                await anext(messages)
            with pytest.raises(cubecast.AttachError):
                await ClientShell(TOKENS["alice"], name="alice").attach(where, 10.0)
            async with cubecast.connect(where, name="carol", secret=carol["carol"]) as client:
                await client.publish("presence/carol", "here")
            await bob.publish("presence/bob", "still here")


@on_virtual_time
async def test_packets_that_go_around_a_broken_link_are_checked_like_the_rest(
    tmp_path: Path,
) -> None:
    """A relay passes such packets on unread, so their receiver is the first hop."""
    rules = '[[rule]]\nwho = "node:"\npublish = ["open"]\nsubscribe = ["#"]\n'
    config = NodeConfig.preset("local", permissions=str(written(tmp_path, rules)))
    async with Cluster(3, config=config) as nodes:
        victim, mole = nodes[0], nodes[2]
        shell_of(mole).access = None
        nodes.cut(0, 2)
        await asyncio.sleep(5)
        async with victim.subscribe("closed") as closed, victim.subscribe("open") as opened:
            await mole.publish("closed", "1")
            await mole.publish("open", "2")
            assert (await anext(opened)).payload == b"2"
            while not victim.explain("closed")["dropped"]:
                await asyncio.sleep(0.1)
            assert closed.unread == 0


@live
async def test_a_refused_handshake_is_audited(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with cluster(1, secret="open sesame, please", audit_log=str(log)) as nodes:
        with pytest.raises(AttachError, match="secret is not the same"):
            async with cubecast.connect(nodes[0].address, secret="not the right one"):
                pass
        while not log.exists() or not log.read_text(encoding="utf-8"):
            await asyncio.sleep(0.01)
        (line,) = log.read_text(encoding="utf-8").splitlines()
        said = json.loads(line)
        assert said["what"] == "connect"
        assert "the cluster secret is not the same" in line


@live
async def test_members_have_the_permissions_of_the_names_in_their_certificates(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path / "pki")
    pki.issue("node", "alpha", "beta")
    path = written(
        tmp_path,
        '[[rule]]\nwho = "node:alpha"\npublish = ["news"]\n\n'
        '[[rule]]\nwho = "node:*"\nsubscribe = ["news"]\n',
    )
    alpha = NodeConfig(permissions=str(path), **tls_keys(pki.tls("alpha")))
    beta = NodeConfig(permissions=str(path), **tls_keys(pki.tls("beta")))
    second = Shell(beta).node
    async with cubecast.join(None, config=alpha) as first:
        await shell_of(second).start(first.address)
        messages = await second.subscribe("news").__aenter__()
        assert (shell_of(first).identity, shell_of(second).identity) == ("alpha", "beta")
        await first.publish("news", "hello")
        assert (await anext(messages)).payload == b"hello"
        with pytest.raises(NotAllowed):
            await second.publish("news", "not mine to say")
        # One that does not ask itself is stopped at the first hop, by the name it has proved.
        shell_of(second).access = None
        async with first.subscribe("news") as heard:
            await second.publish("news", "smuggled")
            while not first.explain("news")["dropped"]:
                await asyncio.sleep(0.01)
            await first.publish("news", "the last")
            assert (await anext(heard)).payload == b"the last"
        shell_of(second).kill()  # what it smuggled is never confirmed

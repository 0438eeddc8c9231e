"""The checkers on runs with crashes: small traces that break each property, and near misses."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.trace import Property, Record, check, merge
from support.trace_stories import A, B, C, D, Drama, Story


def drama(*joined: int) -> Drama:
    return Drama(joined=joined)


# lives


def test_a_new_life_is_judged_as_a_node_of_its_own() -> None:
    story = drama(A, B).publish(A, "m").deliver("m", A, B)
    story.crash(B).view(1, 0b01, A).restart(B).view(2, 0b11, A, B)
    story.subscribe(B).join(B).publish(A, "n").deliver("n", A, B)
    assert story.broken() == []
    assert story.deliver("m", B).broken() == [("fifo", B, "m"), ("causal-order", B, "m")]


def test_a_message_seen_again_in_a_new_life_is_no_duplicate() -> None:
    story = drama(A, B).publish(A, "m").deliver("m", A, B)
    story.crash(B).restart(B).view(1, 0b11, A, B).subscribe(B).join(B).deliver("m", B)
    assert story.broken() == []
    assert story.deliver("m", B).broken() == [("no-duplication", B, "m")]


def test_a_restart_without_a_crash_record_ends_the_life_before() -> None:
    story = drama(A, B).publish(A, "m").deliver("m", A)
    story.restart(B).view(1, 0b11, A, B)
    assert story.broken() == []
    assert story.deliver("m", B).broken() == [("membership", B, "m")]


def test_two_lives_of_a_publisher_are_two_publishers() -> None:
    story = drama(A, B, C).publish(A, "old")
    story.crash(A).view(1, 0b110, B, C).restart(A).view(2, 0b111, A, B, C)
    story.publish(A, "new").deliver("new", B, C).deliver("old", B, C)
    assert story.broken() == []


def test_a_dead_node_delivers_nothing() -> None:
    story = drama(A, B).publish(A, "m")
    story.crash(B).view(1, 0b01, A).deliver("m", A)
    assert story.broken() == []
    assert story.deliver("m", B).broken() == [("membership", B, "m")]


def test_the_dead_wait_for_nothing() -> None:
    story = drama(A).then("subscribe", B).then("state", B, held=3, topic="")
    assert ("quiescence", B, None) in story.broken()
    assert story.crash(B).view(1, 0b01, A).broken() == []


# completeness


def test_a_message_of_a_life_that_is_up_is_owed_to_who_is_up() -> None:
    story = drama(A, B, C).publish(B, "m").deliver("m", B)
    story.survivors()
    assert story.broken() == [("completeness", C, "m")], "not to A, which is dead"
    assert story.deliver("m", C).broken() == []


def test_a_message_that_died_with_its_publisher_is_not_owed() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A)
    assert story.survivors().broken() == []


def test_a_restarted_publisher_owes_nothing_for_the_life_before() -> None:
    story = drama(A, B).publish(A, "m").deliver("m", A)
    story.crash(A).view(1, 0b10, B).restart(A).view(2, 0b11, A, B)
    assert story.broken() == []
    assert story.publish(A, "n").broken() == [("completeness", B, "n")]


def test_a_hole_left_by_a_dead_publisher_is_a_loss() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A, B).publish(B, "n").deliver("n", A, B)
    story.crash(A, B).view(1, 0b100, C)
    assert story.broken() == []
    assert story.deliver("n", C).broken() == [("completeness", C, "m")]
    assert story.gap(C, id="m").broken() == []


def test_a_hole_in_a_life_that_crashed_is_a_loss_too() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A, B).publish(B, "n").deliver("n", A, B, C)
    story.crash(C).view(1, 0b011, A, B)
    assert story.broken() == [("completeness", C, "m")]
    story.discard(A, id="m")
    assert story.broken("completeness") == [], "its publisher took it back, though late"


def test_a_discard_by_a_node_other_than_the_publisher_does_not_excuse() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A, B)
    story.view(1, 0b011, A, B).view(2, 0b111, A, B, C).discard(C, id="m")
    assert story.broken() == [("completeness", C, "m")]
    assert story.gap(C, id="m").broken() == []


# agreement


def test_a_message_of_the_dead_that_one_survivor_delivered_all_deliver() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A, B)
    story.survivors()
    assert story.broken() == [("agreement", C, "m")]
    assert story.discard(C, id="m").broken() == [("agreement", C, "m")], "discarded here alone"
    assert story.gap(C, id="m").broken() == []


def test_survivors_that_agree_to_drop_a_message_do_agree() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A)
    assert story.survivors().discard(C, id="m").broken() == []


def test_a_delivery_in_a_life_that_ended_does_not_bind_others() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A, B)
    story.survivors().crash(B).view(2, 0b100, C)
    assert story.broken() == []
    story.restart(B).view(3, 0b110, B, C).subscribe(B).join(B)
    assert story.broken() == []


def test_a_newcomer_is_not_owed_what_was_published_before_it_joined() -> None:
    story = drama(A, B).publish(A, "m").deliver("m", A, B).subscribe(C).join(C)
    assert story.survivors().broken() == []


def test_a_node_that_left_is_owed_nothing_but_its_delivery_binds() -> None:
    story = drama(A, B, C).publish(A, "m").deliver("m", A, B).leave(B)
    assert story.survivors().broken() == [("agreement", C, "m")]
    assert story.leave(C).broken() == []


def test_counted_gaps_excuse_as_many_messages_of_the_dead() -> None:
    story = drama(A, B, C).publish(A, 0).publish(A, 1).deliver(0, A, B).deliver(1, A, B)
    assert story.survivors().gap(C, seq=1).broken() == [("agreement", C, 1)]
    assert story.gap(C, seq=1).broken() == []


def test_a_message_that_died_with_its_publisher_takes_no_place_of_a_counted_gap() -> None:
    """A node cannot count a message of which no survivor knows."""
    story = drama(A, B, C).publish(D, "unknown").crash(D)
    for id in (0, 1):
        story.publish(A, id).deliver(id, A, B)
    assert story.survivors().gap(C, seq=1).broken() == [("agreement", C, 1)]
    assert story.gap(C, seq=1).broken() == []


# loss-reports


def test_a_node_must_not_deliver_a_message_it_reports_as_lost() -> None:
    for kind in ("gap", "discard"):
        before = drama(A, B).publish(A, "m").deliver("m", A, B)
        assert before.then(kind, B, id="m").broken("loss-reports") == [("loss-reports", B, "m")]
        after = drama(A, B).publish(A, "m").deliver("m", A)
        after.then(kind, B, id="m")
        assert after.broken("loss-reports") == []
        assert after.deliver("m", B).broken("loss-reports") == [("loss-reports", B, "m")]


def test_a_publisher_may_have_delivered_what_the_others_discard() -> None:
    story = drama(A, B).publish(A, "m").deliver("m", A).discard(A, id="m")
    assert story.broken("loss-reports") == []
    assert story.gap(A, id="m").broken("loss-reports") == [("loss-reports", A, "m")]


def test_a_message_lost_in_one_life_may_be_delivered_in_the_next() -> None:
    story = drama(A, B).publish(A, "m").deliver("m", A).gap(B, id="m")
    story.crash(B).restart(B).view(1, 0b11, A, B).subscribe(B).join(B).deliver("m", B)
    assert story.broken() == []


def test_nothing_is_lost_that_was_never_there() -> None:
    story = drama(A, B).gap(B, id="ghost")
    assert story.broken() == [("loss-reports", B, "ghost")]


# loss-reasons


def test_a_loss_without_crash_or_exclusion_has_no_reason() -> None:
    story = drama(A, B).view(1, 0b11, A, B).publish(A, "m").deliver("m", A).gap(B, id="m")
    assert story.broken() == [("loss-reasons", B, "m")]
    assert Story(joined=[A, B]).gap(B, seq=3).broken() == [], "a run without views has laggards"
    story.view(2, 0b01, A).view(3, 0b11, A, B)
    assert story.broken() == []


def test_a_crash_is_a_reason_and_so_is_what_was_asked_for() -> None:
    story = drama(A, B).view(1, 0b11, A, B).publish(A, "m").deliver("m", A)
    story.then("gap", B, id="m", message="lossy")
    assert story.broken() == []
    story.publish(A, "n").deliver("n", A).discard(A, id="n")
    assert story.broken() == [("loss-reasons", A, "n")]
    assert story.crash(B).view(2, 0b01, A).broken() == []


# convergence


def test_all_end_in_one_view_of_exactly_those_who_are_up() -> None:
    story = drama(A, B, C).crash(A)
    assert story.broken() == [("convergence", B, None), ("convergence", C, None)]
    assert story.view(1, 0b110, B).broken() == [("convergence", C, None)]
    assert story.view(1, 0b110, C).broken() == []
    assert story.view(2, 0b110, C).broken() == [("convergence", B, None)]
    assert story.view(2, 0b111, B).broken() == [("convergence", C, None), ("convergence", B, None)]


def test_a_view_that_names_the_dead_or_leaves_out_the_living_is_wrong() -> None:
    story = drama(A, B, C).crash(A)
    assert story.view(1, 0b111, B, C).broken() == [("convergence", B, None)]
    assert story.view(2, 0b010, B, C).broken() == [("convergence", B, None)]
    assert story.view(3, 0b110, B, C).broken() == []


def test_a_view_of_an_earlier_life_does_not_count() -> None:
    story = drama(A, B).view(1, 0b11, A, B).crash(B).restart(B)
    assert story.broken() == [("convergence", B, None)]
    assert story.view(1, 0b11, B).broken() == []


def test_a_node_out_for_good_is_not_waited_for() -> None:
    story = drama(A, B).view(1, 0b11, A, B).view(2, 0b01, A)
    assert story.broken() == [("convergence", B, None), ("convergence", A, None)]
    assert story.view(2, 0, B).broken() == []


def test_a_trace_without_crashes_and_views_has_no_view_to_agree_on() -> None:
    assert drama(A, B).broken() == []


# merging


def test_a_loss_is_told_after_the_publication_whatever_the_clocks_say() -> None:
    ours = [Record("gap", 1, B, "news", "m"), Record("leave", 2, B, "news")]
    theirs = [Record("publish", 9, A, "news", "m")]
    merged = list(merge([ours, theirs]))
    assert [record.kind for record in merged] == ["publish", "gap", "leave"]
    assert check(merged, ["loss-reports"]).ok


# dumb oracles

KINDS = ["publish"] * 4 + ["deliver"] * 8 + ["join"] * 3 + ["leave", "crash", "restart", "restart"]
KINDS += ["gap", "gap", "discard"]


@st.composite
def histories(draw: st.DrawFn, nodes: int = 3, length: int = 70) -> list[Record]:
    """Random deeds of a few mortal nodes, most of them wrong. Ids count publications."""
    deed = st.tuples(st.sampled_from(KINDS), st.integers(0, nodes - 1), st.integers(0, 5))
    some = st.sets(st.integers(0, nodes - 1))
    first = [("join", node, 0) for node in sorted(draw(some))]
    last = [("crash", node, 0) for node in sorted(draw(some))]
    size = draw(st.integers(0, length))
    deeds = [*first, *draw(st.lists(deed, min_size=size, max_size=size)), *last]
    records: list[Record] = []
    published = 0
    down: set[int] = set()
    for time, (kind, node, choice) in enumerate(deeds):
        if (kind == "restart") != (node in down):
            continue
        if kind in ("crash", "restart"):
            down ^= {node}
            records.append(Record(kind, time, node))  # type: ignore[arg-type]
            continue
        id = published if kind == "publish" else published - 1 - choice
        if kind in ("join", "leave"):
            records.append(Record(kind, time, node, "news"))  # type: ignore[arg-type]
        elif id >= 0:
            published += kind == "publish"
            records.append(Record(kind, time, node, "news", id))  # type: ignore[arg-type]
    return records


def as_nodes(records: list[Record]) -> list[Record]:
    """The same deeds with a node number per life and a ``leave`` where a life ends."""
    lives: Counter[int] = Counter()
    found = []
    for record in records:
        if record.kind == "restart":
            lives[record.node] += 1
            continue
        kind: Any = "leave" if record.kind == "crash" else record.kind
        node = record.node + 100 * lives[record.node]
        found.append(Record(kind, record.time, node, "news", record.id))
    return found


@settings(max_examples=300, deadline=None)
@given(histories())
def test_a_life_is_judged_as_a_node_is(records: list[Record]) -> None:
    order: list[Property] = [
        "no-creation", "no-duplication", "fifo", "causal-order", "membership", "loss-reports",
    ]  # fmt: skip
    ours, theirs = check(records, order, limit=1000), check(as_nodes(records), order, limit=1000)
    assert ours.counts == theirs.counts
    assert (ours.gaps, ours.discards, ours.deliveries) == (
        theirs.gaps,
        theirs.discards,
        theirs.deliveries,
    )


class Life:
    """One life, as an oracle remembers it."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.up = True
        self.delivered: list[int] = []
        self.seen: set[int] = set()
        """All that was published or delivered here, with its past."""
        self.shadow: set[int] = set()
        """All that was delivered here, with its past."""
        self.gaps: set[int] = set()
        self.counted: list[tuple[int, int]] = []
        """(messages published by then, messages lost) of each gap without an id."""
        self.joined: int | None = None
        """Messages published when the open subscription began."""


class Oracle:
    """Completeness and agreement by their definitions, without a thought for cost."""

    def __init__(self, records: list[Record]) -> None:
        self.now: dict[int, Life] = {}
        self.lives: list[Life] = []
        self.publishers: list[Life] = []
        self.past: list[set[int]] = []
        self.withdrawn: set[int] = set()
        self.holes: list[tuple[int, int]] = []
        for record in records:
            getattr(self, record.kind)(self.life(record.node), record)

    def life(self, node: int) -> Life:
        if node not in self.now:
            self.now[node] = Life(node)
            self.lives.append(self.now[node])
        return self.now[node]

    def publish(self, life: Life, record: Record) -> None:
        self.past.append(set(life.seen))
        self.publishers.append(life)
        life.seen.add(len(self.past) - 1)

    def deliver(self, life: Life, record: Record) -> None:
        assert isinstance(record.id, int)
        life.delivered.append(record.id)
        life.shadow |= {record.id, *self.past[record.id]}
        life.seen |= life.shadow

    def join(self, life: Life, record: Record) -> None:
        if life.joined is None:
            life.joined = len(self.past)

    def leave(self, life: Life, record: Record) -> None:
        self.holes += [(life.node, id) for id in self.missing(life) if id in life.shadow]
        life.joined = None

    def crash(self, life: Life, record: Record) -> None:
        self.leave(life, record)
        life.up = False

    def restart(self, life: Life, record: Record) -> None:
        del self.now[life.node]

    def gap(self, life: Life, record: Record) -> None:
        if record.id is None:
            life.counted.append((len(self.past), record.seq))
        else:
            assert isinstance(record.id, int)
            life.gaps.add(record.id)

    def discard(self, life: Life, record: Record) -> None:
        assert isinstance(record.id, int)
        if self.publishers[record.id] is life:
            self.withdrawn.add(record.id)

    def missing(self, life: Life) -> list[int]:
        """What was published in the open subscription, and neither delivered nor named lost."""
        if life.joined is None:
            return []
        owed = range(life.joined, len(self.past))
        return [id for id in owed if id not in life.delivered and id not in life.gaps]

    def incomplete(self) -> list[tuple[int, int]]:
        found = list(self.holes)
        for life in self.lives:
            found += [
                (life.node, id)
                for id in self.missing(life)
                if self.publishers[id].up or id in life.shadow
            ]
        return sorted((node, id) for node, id in found if id not in self.withdrawn)

    def disagreeing(self) -> list[tuple[int, int]]:
        known = {id for life in self.lives if life.up for id in life.delivered}
        return sorted(
            (life.node, id)
            for life in self.lives
            for id in self.missing(life)
            if id in known and not self.publishers[id].up
        )

    def uncounted(self) -> Counter[int]:
        """Node -> how many of these are left when each place of a counted gap covers one message.

        By Hall's theorem: of the messages from any one on, those that are more than the places of
        the gaps that come later.
        """
        found: Counter[int] = Counter()
        for life in self.lives:
            owed = [id for node, id in self.disagreeing() if node == life.node and life.up]
            for place, id in enumerate(owed):
                room = sum(count for published, count in life.counted if published > id)
                found[life.node] = max(found[life.node], len(owed) - place - room)
        return +found


@settings(max_examples=500, deadline=None)
@given(histories())
def test_completeness_and_agreement_agree_with_their_definitions(records: list[Record]) -> None:
    oracle = Oracle(records)
    report = check(records, ["completeness", "agreement"], limit=10_000)
    found: dict[str, list[Any]] = {"completeness": [], "agreement": []}
    for violation in report.violations:
        found[violation.property].append((violation.node, violation.id))
    assert sorted(found["completeness"]) == oracle.incomplete()
    assert sorted(found["agreement"]) == oracle.disagreeing()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["known", "unknown", "of the living", "gap", "gaps"])))
def test_agreement_lets_a_place_of_a_counted_gap_cover_one_message(deeds: list[str]) -> None:
    """C delivers nothing; B delivers what A and B publish; what D publishes is not delivered."""
    story = drama().join(B).join(C)
    published = 0
    for deed in deeds:
        if deed.startswith("gap"):
            story.gap(C, seq=len(deed) - 2)
            continue
        story.publish({"known": A, "unknown": D}.get(deed, B), published)
        if deed != "unknown":
            story.deliver(published, B)
        published += 1
    story.crash(A, D)
    report = check(story.records, ["agreement"], limit=10_000)
    found = Counter(violation.node for violation in report.violations)
    assert found == Oracle(story.records).uncounted()


def test_a_node_that_left_the_cluster_waits_for_nothing_and_one_that_stays_does() -> None:
    waiting = [Record("state", 5, node, "t", held=2) for node in (0, 1)]
    left = Record("view", 9, 0, seq=1, members=0)
    found = check([*waiting, left], ["quiescence"])
    assert [one.node for one in found.violations] == [1]

"""The cube's closed forms against the recursive definition, and what its trees promise."""

import pickle
import random
import re
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.topology import (
    MAX_DIMENSION,
    Tree,
    children,
    cluster,
    cluster_mask,
    cluster_members,
    dimension_for,
    everyone,
    first_member,
    forwarding_children,
    forwarding_tree,
    mask_of,
    members_of,
    parent,
    tree,
)

# The oracle: [J] section 2 and [S] Algorithm 3 word for word, with lists and sets.


def c(i: int, s: int) -> list[int]:
    """c(i,s) = i XOR 2^(s-1) || c(i XOR 2^(s-1), k) for k = 1..s-1."""
    j = i ^ 2 ** (s - 1)
    listed = [j]
    for k in range(1, s):
        listed += c(j, k)
    return listed


def dumb_first_member(i: int, s: int, members: set[int]) -> int | None:
    return next((k for k in c(i, s) if k in members), None)


def dumb_children(i: int, members: set[int], h: int) -> tuple[int, ...]:
    found = (dumb_first_member(i, s, members) for s in range(1, h + 1))
    return tuple(k for k in found if k is not None)


def dumb_forwarding_children(i: int, members: set[int], h: int) -> tuple[int, ...]:
    return tuple(c(i, s)[0] for s in range(1, h + 1) if members.intersection(c(i, s)))


# Ids up to 2^9: beyond the byte in which the search ends, and small enough for the oracle.
DIMENSION = 9
ids = st.integers(0, 2**DIMENSION - 1)
cluster_numbers = st.integers(1, DIMENSION)
sparse_sets = st.sets(ids, max_size=12)
dense_sets = sparse_sets.map(lambda missing: set(range(2**DIMENSION)) - missing)
half_sets = st.integers(0, everyone(DIMENSION)).map(lambda mask: set(members_of(mask)))
member_sets = sparse_sets | dense_sets | half_sets

unhurried = settings(deadline=None)  # a busy machine is no failure


@unhurried
@given(ids, cluster_numbers)
def test_cluster_members_are_the_recursion_unfolded(i: int, s: int) -> None:
    assert list(cluster_members(i, s)) == c(i, s)


@unhurried
@given(ids, cluster_numbers)
def test_cluster_mask_is_the_set_of_the_members(i: int, s: int) -> None:
    assert cluster_mask(i, s) == mask_of(c(i, s))


@unhurried
@given(ids, ids)
def test_cluster_is_the_one_that_lists_j(i: int, j: int) -> None:
    if i != j:
        assert [s for s in range(1, DIMENSION + 1) if j in c(i, s)] == [cluster(i, j)]


@unhurried
@given(ids, cluster_numbers, member_sets)
def test_first_member_is_the_first_listed(i: int, s: int, members: set[int]) -> None:
    assert first_member(i, s, mask_of(members)) == dumb_first_member(i, s, members)


@unhurried
@given(ids, member_sets, st.integers(0, DIMENSION))
def test_children_are_the_first_members(i: int, members: set[int], h: int) -> None:
    assert children(i, mask_of(members), h) == dumb_children(i, members, h)


@unhurried
@given(ids, member_sets, st.integers(0, DIMENSION))
def test_forwarding_children_lead_clusters_with_members(i: int, members: set[int], h: int) -> None:
    expected = dumb_forwarding_children(i, members, h)
    assert forwarding_children(i, mask_of(members), h) == expected


def test_every_member_set_of_a_small_cube() -> None:
    """No sampling: all 256 sets of 8 nodes, all roots, all h."""
    for mask in range(256):
        members = set(members_of(mask))
        for i in range(8):
            for h in range(4):
                assert children(i, mask, h) == dumb_children(i, members, h)
                expected = dumb_forwarding_children(i, members, h)
                assert forwarding_children(i, mask, h) == expected


@unhurried
@given(ids, member_sets, st.integers(0, DIMENSION))
def test_children_do_not_depend_on_the_node_itself(i: int, members: set[int], h: int) -> None:
    assert children(i, mask_of(members | {i}), h) == children(i, mask_of(members - {i}), h)


# Sets


@unhurried
@given(st.lists(st.integers(0, 5000)))
def test_sets_survive_the_round_trip(nodes: list[int]) -> None:
    mask = mask_of(nodes)
    assert mask == sum(1 << k for k in set(nodes))
    assert list(members_of(mask)) == sorted(set(nodes))


@pytest.mark.parametrize(
    ("n", "dimension"),
    [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (4096, 12), (4097, 13), (2**20, 20)],
)
def test_dimension_for(n: int, dimension: int) -> None:
    assert dimension_for(n) == dimension


def test_everyone() -> None:
    assert [list(members_of(everyone(d))) for d in range(3)] == [[0], [0, 1], [0, 1, 2, 3]]


# Trees

LARGE = [(n, density) for n in (8, 100, 1024, 4096) for density in (0.002, 0.05, 0.25, 0.75, 1.0)]


def random_members(n: int, density: float, chance: random.Random) -> int:
    return mask_of(k for k in range(n) if chance.random() < density)


def reached(spanning: Tree) -> Counter[int]:
    """How often a message sent down the tree arrives at each node, by the children alone."""
    arrivals: Counter[int] = Counter()
    pending = [spanning.root]
    while pending:
        below = spanning.children[pending.pop()]
        arrivals.update(below)
        pending += below
    return arrivals


def check_shape(spanning: Tree) -> None:
    """The two mappings, the visiting order, the depths and the height tell one story."""
    assert spanning.nodes[0] == spanning.root
    assert set(spanning.nodes) == {spanning.root, *spanning.parent}
    assert list(spanning.edges) == [(p, k) for p, below in spanning.children.items() for k in below]
    assert all(k in spanning.children[p] for k, p in spanning.parent.items())
    depths = [spanning.depth(k) for k in spanning.nodes]
    assert depths == sorted(depths)
    assert spanning.height == max(depths) <= spanning.dimension
    for below in spanning.children.values():
        hops = [cluster(k, spanning.parent[k]) for k in below]
        assert hops == sorted(set(hops))


@pytest.mark.parametrize(("n", "density"), LARGE)
@pytest.mark.parametrize("seed", range(3))
def test_tree_reaches_each_member_once_and_no_other_node(n: int, density: float, seed: int) -> None:
    chance = random.Random(f"{n} {density} {seed}")
    members = random_members(n, density, chance)
    dimension = dimension_for(n)
    member_roots = chance.sample(list(members_of(members)), min(2, members.bit_count()))
    for root in [*member_roots, chance.randrange(n), chance.randrange(2**dimension)]:
        spanning = tree(root, members, dimension)
        expected = {k: 1 for k in members_of(members) if k != root}
        assert reached(spanning) == expected
        assert spanning.forwarders == ()
        assert len(spanning.edges) == len(expected)
        check_shape(spanning)


@pytest.mark.parametrize(("n", "density"), LARGE)
def test_forwarding_tree_reaches_each_member_and_ends_in_members(n: int, density: float) -> None:
    chance = random.Random(f"{n} {density}")
    members = random_members(n, density, chance)
    dimension = dimension_for(n)
    root = chance.randrange(2**dimension)
    spanning = forwarding_tree(root, members, dimension)
    arrivals = reached(spanning)
    assert set(arrivals.values()) <= {1}
    assert {k for k in members_of(members) if k != root} <= set(arrivals)
    assert all(below or members >> k & 1 for k, below in spanning.children.items() if k != root)
    assert all((k ^ p).bit_count() == 1 for k, p in spanning.parent.items())
    assert set(spanning.forwarders) == {k for k in arrivals if not members >> k & 1}
    check_shape(spanning)


@unhurried
@given(ids, member_sets)
def test_tree_steps_as_the_nodes_would(root: int, members: set[int]) -> None:
    """[J] Algorithm 2, lines 42-44: a receiver calls CHILDREN(i, t, CLUSTER(i, sender) - 1)."""
    spanning = tree(root, mask_of(members), DIMENSION)
    assert spanning.children[root] == dumb_children(root, members, DIMENSION)
    for k, sender in spanning.parent.items():
        assert spanning.children[k] == dumb_children(k, members, cluster(k, sender) - 1)


def test_full_cube_has_the_binomial_tree_of_height_d() -> None:
    spanning = tree(77, everyone(12), 12)
    by_depth = Counter(spanning.depth(k) for k in spanning.nodes)
    assert by_depth == {
        0: 1, 1: 12, 2: 66, 3: 220, 4: 495, 5: 792, 6: 924,
        7: 792, 8: 495, 9: 220, 10: 66, 11: 12, 12: 1,
    }  # fmt: skip
    assert forwarding_tree(77, everyone(12), 12) == spanning


def test_ids_may_be_missing() -> None:
    """Six ids in a cube of eight, one of them gone: no member is skipped, no gap is crossed."""
    spanning = tree(5, mask_of([0, 1, 2, 3, 5]), dimension_for(6))
    assert dict(spanning.children) == {5: (1,), 1: (0, 3), 0: (), 3: (2,), 2: ()}
    assert spanning.height == 3


def test_forwarders_are_counted_without_the_root() -> None:
    spanning = forwarding_tree(0, mask_of([7]), 3)
    assert spanning.edges == ((0, 4), (4, 6), (6, 7))
    assert spanning.forwarders == (4, 6)
    assert tree(0, mask_of([7]), 3).edges == ((0, 7),)


@pytest.mark.parametrize("members", [0, mask_of([3])])
def test_a_root_without_other_members_has_no_edges(members: int) -> None:
    spanning = tree(3, members, 2)
    assert (spanning.nodes, spanning.edges, spanning.height) == ((3,), (), 0)


def test_a_cube_of_one() -> None:
    assert tree(0, everyone(0), 0).nodes == (0,)


def test_the_largest_ids() -> None:
    top = 2**MAX_DIMENSION - 1
    members = mask_of([0, 1, top])
    assert cluster(0, top) == MAX_DIMENSION
    assert first_member(top, MAX_DIMENSION, members) == 1
    assert tree(top, members, MAX_DIMENSION).edges == ((top, 1), (1, 0))


def test_a_tree_can_be_sent_elsewhere() -> None:
    """Spark tasks ship what they compute."""
    spanning = tree(2, everyone(4), 4)
    assert pickle.loads(pickle.dumps(spanning)) == spanning


# Bad input

BEYOND = 2**MAX_DIMENSION


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cluster(3, 3), "node 3 is in no cluster of its own"),
        (lambda: cluster(-1, 3), "node ids are not negative: -1"),
        (lambda: cluster(3, -2), "node ids are not negative: -2"),
        (lambda: cluster_members(-1, 1), "node ids are not negative: -1"),
        (lambda: cluster_members(0, 0), "cluster numbers go from 1 to 20: 0"),
        (lambda: cluster_members(0, 64), "cluster numbers go from 1 to 20: 64"),
        (lambda: cluster_mask(0, -1), "cluster numbers go from 1 to 20: -1"),
        (lambda: cluster_mask(BEYOND, 1), "node ids are below 1048576: 1048576"),
        (lambda: first_member(0, 0, 1), "cluster numbers go from 1 to 20: 0"),
        (lambda: first_member(0, 1, -1), "a set of nodes is an int that is not negative"),
        (lambda: everyone(-1), "the dimension of a cube is 0 to 20: -1"),
        (lambda: everyone(21), "the dimension of a cube is 0 to 20: 21"),
        (lambda: dimension_for(0), "a cube holds 1 to 1048576 nodes, not 0"),
        (lambda: dimension_for(BEYOND + 1), "a cube holds 1 to 1048576 nodes, not 1048577"),
        (lambda: mask_of([4, -1]), "node ids are not negative: -1"),
        (lambda: mask_of([4, BEYOND]), "node ids are below 1048576: 1048576"),
        (lambda: list(members_of(-1)), "a set of nodes is an int that is not negative"),
        (lambda: tree(8, 1, 3), "root 8 is not one of the 8 ids of the cube"),
        (lambda: tree(-1, 1, 3), "root -1 is not one of the 8 ids of the cube"),
        (lambda: tree(0, 1 << 8, 3), "member 8 is not one of the 8 ids of the cube"),
        (lambda: tree(0, -1, 3), "a set of nodes is an int that is not negative"),
        (lambda: tree(0, 1, 21), "the dimension of a cube is 0 to 20: 21"),
        (lambda: forwarding_tree(8, 1, 3), "root 8 is not one of the 8 ids of the cube"),
        (lambda: tree(0, 3, 3).depth(2), "node 2 is not in the tree"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


@given(st.integers(0, 511), st.sets(st.integers(0, 511), max_size=60))
def test_parent_is_the_one_of_the_tree(root: int, members: set[int]) -> None:
    mask = mask_of(members)
    grown = tree(root, mask, 9)
    for node in range(512):
        assert parent(root, node, mask) == grown.parent.get(node)

"""The cube as the papers print it, one test per claim.

[J] is VCube-PS (JPDC 2018), [S] its short version, [B] VCube-PB (SBRC 2017). Where a paper slips,
the test says what is printed and checks what must be meant.
"""

import pytest

from cubecast.topology import (
    Tree,
    children,
    cluster,
    cluster_mask,
    cluster_members,
    everyone,
    first_member,
    mask_of,
    tree,
)

ALL = everyone(3)
"""Figure 1 of [J] and [S], Figure 2 of [B]: eight nodes, all of them subscribers."""

FIGURE_1: dict[tuple[int, int], tuple[int, ...]] = {
    (0, 1): (1,),
    (1, 1): (0,),
    (2, 1): (3,),
    (3, 1): (2,),
    (4, 1): (5,),
    (5, 1): (4,),
    (6, 1): (7,),
    (7, 1): (6,),
    (0, 2): (2, 3),
    (1, 2): (3, 2),
    (2, 2): (0, 1),
    (3, 2): (1, 0),
    (4, 2): (6, 7),
    (5, 2): (7, 6),
    (6, 2): (4, 5),
    (7, 2): (5, 4),
    (0, 3): (4, 5, 6, 7),
    (1, 3): (5, 4, 7, 6),
    (2, 3): (6, 7, 4, 5),
    (3, 3): (7, 6, 5, 4),
    (4, 3): (0, 1, 2, 3),
    (5, 3): (1, 0, 3, 2),
    (6, 3): (2, 3, 0, 1),
    (7, 3): (3, 2, 1, 0),
}


def edges(spanning: Tree) -> set[tuple[int, int]]:
    return set(spanning.edges)


# Clusters


@pytest.mark.parametrize(("i", "s"), FIGURE_1)
def test_figure_1_table_of_clusters(i: int, s: int) -> None:
    """[J] and [S] Figure 1, [B] Figure 2: every c(i,s) of the 3-VCube, in its order."""
    assert cluster_members(i, s) == FIGURE_1[i, s]
    assert cluster_mask(i, s) == mask_of(FIGURE_1[i, s])


def test_cluster_sizes_are_powers_of_two() -> None:
    """[J] section 2: cluster s = 1..d has 2^(s-1) nodes, and together they are all the others."""
    for i in range(8):
        clusters = [cluster_members(i, s) for s in (1, 2, 3)]
        assert [len(c) for c in clusters] == [1, 2, 4]
        assert sorted(k for c in clusters for k in c) == [k for k in range(8) if k != i]


def test_cluster_of_node_0() -> None:
    """[J] 3.3 and [S] III: CLUSTER(0,1) = 1, CLUSTER(0,2..3) = 2, CLUSTER(0,4..7) = 3."""
    assert [cluster(0, j) for j in range(1, 8)] == [1, 2, 2, 3, 3, 3, 3]


def test_cluster_is_symmetric() -> None:
    """[S] Algorithm 3, line 14 defines CLUSTER_i(j) by 'i in c(j,s)', [J] 3.3 by j in c(i,s)."""
    for (i, s), members in FIGURE_1.items():
        for j in members:
            assert cluster(i, j) == cluster(j, i) == s


def test_failure_free_tests_of_node_0() -> None:
    """[S] II and [B] 5.1: p0 tests only nodes 1, 2 and 4, the first of its three clusters."""
    assert [first_member(0, s, ALL) for s in (1, 2, 3)] == [1, 2, 4]


# Children


@pytest.mark.parametrize(
    ("i", "h", "expected"), [(0, 3, (1, 2, 4)), (0, 2, (1, 2)), (4, 2, (5, 6))]
)
def test_children_when_everyone_subscribes(i: int, h: int, expected: tuple[int, ...]) -> None:
    """[J] 3.3 CHILDREN(i,*,h), [S] III NEIGHBORHOOD_i(*,h), [B] 5.2 neighborhood_i(t,h)."""
    assert children(i, ALL, h) == expected


def test_children_when_only_0_3_and_4_subscribe() -> None:
    """[J] 3.3: CHILDREN(0,t1,3) = {3,4} and CHILDREN(4,t1,2) is empty ([S] III prints a bottom)."""
    t1 = mask_of([0, 3, 4])
    assert children(0, t1, 3) == (3, 4)
    assert children(4, t1, 2) == ()


# [J] Figure 3, left: all subscribe to t1, p0 publishes


@pytest.mark.parametrize(
    ("i", "h", "expected"),
    [(0, 3, (1, 2, 4)), (1, 0, ()), (2, 1, (3,)), (3, 0, ()), (4, 2, (5, 6)), (6, 1, (7,))],
)
def test_figure_3_left_children(i: int, h: int, expected: tuple[int, ...]) -> None:
    """[J] 3.3, the text of Figure 3, left."""
    assert children(i, ALL, h) == expected


def test_figure_3_left_tree() -> None:
    """[J] Figure 3, left: also the first example of [B] 5.3."""
    spanning = tree(0, ALL, 3)
    assert edges(spanning) == {(0, 1), (0, 2), (0, 4), (2, 3), (4, 5), (4, 6), (6, 7)}
    assert spanning.height == 3
    assert [spanning.depth(k) for k in range(8)] == [0, 1, 1, 2, 1, 2, 2, 3]


# [J] Figure 3, right: 0, 2, 3, 5 and 7 subscribe to t2, p2 publishes

T2 = mask_of([0, 2, 3, 5, 7])


def test_figure_3_right_children_of_the_publisher() -> None:
    """[J] 3.3: CHILDREN(2,t2,3) = {3,0,7}; p6 leads c(2,3) but has not subscribed."""
    assert cluster_members(2, 3)[0] == 6
    assert children(2, T2, 3) == (3, 0, 7)


def test_figure_3_right_below_the_publisher() -> None:
    """[J] 3.3: p3 and p0 forward to none, p7 to p5 alone (c(7,2) = (5,4)), p5 not to p4.

    The paper says 'upon receiving m0' here; the message is m2.
    """
    assert children(3, T2, cluster(3, 2) - 1) == ()
    assert children(0, T2, cluster(0, 2) - 1) == ()
    assert cluster_members(7, 2) == (5, 4)
    assert children(7, T2, 2) == (5,)
    assert cluster_members(5, 1) == (4,)
    assert children(5, T2, cluster(5, 7) - 1) == ()


def test_figure_3_right_tree() -> None:
    """[J] Figure 3, right."""
    spanning = tree(2, T2, 3)
    assert edges(spanning) == {(2, 3), (2, 0), (2, 7), (7, 5)}
    assert spanning.nodes == (2, 3, 0, 7, 5)
    assert spanning.height == 2


# [B] 5.3, first example: all subscribe to t1, p0 publishes


def test_b_first_neighbours_of_p0() -> None:
    """[B] 5.3: FF_neighbor_0(t1,1) = 1, FF_neighbor_0(t1,2) = 2, FF_neighbor_0(t1,3) = 4."""
    assert [first_member(0, s, ALL) for s in (1, 2, 3)] == [1, 2, 4]


@pytest.mark.parametrize(("i", "j", "s"), [(1, 0, 1), (2, 0, 2), (3, 2, 1), (4, 0, 3)])
def test_b_cluster_of_the_sender(i: int, j: int, s: int) -> None:
    """[B] 5.3: cluster_1(0) = 1, cluster_2(0) = 2, cluster_3(2) = 1, cluster_4(0) = 3."""
    assert cluster(i, j) == s


def test_b_cluster_of_p6() -> None:
    """[B] 5.3 prints cluster_6(0) = 2; p6's parent is p4, and it is cluster_6(4) that is 2."""
    assert cluster(6, 4) == 2
    assert cluster(6, 0) == 3
    assert children(6, ALL, cluster(6, 4) - 1) == (7,)


def test_b_p0_tree_over_all_nodes() -> None:
    """[B] 5.3: p2 passes on to p3, p4 to p5 in c(4,1) and p6 in c(4,2), p6 to p7; p1, p3 stop."""
    spanning = tree(0, ALL, 3)
    assert dict(spanning.children) == {
        0: (1, 2, 4),
        1: (),
        2: (3,),
        4: (5, 6),
        3: (),
        5: (),
        6: (7,),
        7: (),
    }


# [B] 5.3, second example: 0, 2, 4, 5 and 6 subscribe to t2, p2 publishes

B_T2 = mask_of([0, 2, 4, 5, 6])


def test_b_second_example_neighbours_of_p2() -> None:
    """[B] 5.3: none in c(2,1), 0 in c(2,2), 6 in c(2,3). The first and last say t1 for t2."""
    assert [first_member(2, s, B_T2) for s in (1, 2, 3)] == [None, 0, 6]


def test_b_second_example_tree() -> None:
    """[B] 5.3: p0 does not pass on to p1; p6 finds p4 in c(6,2) = (4,5); p4 passes on to p5."""
    assert cluster_members(6, 2) == (4, 5)
    spanning = tree(2, B_T2, 3)
    assert edges(spanning) == {(2, 0), (2, 6), (6, 4), (4, 5)}
    assert spanning.height == 3


def test_b_p4_crashes_after_p6_sent_to_it() -> None:
    """[B] 5.3: when p4 fails, p6 sends to p5, the next subscriber of t2 in c(6,2)."""
    assert first_member(6, 2, B_T2) == 4
    assert first_member(6, 2, B_T2 & ~mask_of([4])) == 5

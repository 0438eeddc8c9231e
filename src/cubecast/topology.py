"""The cube: the clusters of each node, and the spanning trees that follow.

In VCube ([J] section 2) node i sees the others in clusters s = 1, ..., d of 2^(s-1) nodes each:

    c(i,s) = j || c(j,1) || ... || c(j,s-1)      with j = i XOR 2^(s-1)

Unfolded, that recursion is closed: c(i,s) is the aligned block of 2^(s-1) ids that holds j, listed
by XOR distance from j. So the first subscriber of a cluster is the member k of one block with the
smallest ``k ^ j``, and no list of the cluster is ever made.

A set of nodes is an ``int``: bit k is set when node k belongs to it. Ids may be missing: a cube
that is not full is a set with fewer bits. The trees of this module rest on these facts:

1. Clusters 1..h of i are disjoint, and with i they fill the aligned block of 2^h ids around i.
2. If k is in c(i,s), then i is in c(k,s), and clusters 1..s-1 of k, with k, fill c(i,s). So a child
   from cluster s answers for all of c(i,s) and looks only at its own clusters below s ([J]
   Algorithm 2, lines 42-44): every member is reached exactly once, whatever the set.
3. The cluster number falls at every hop, so no tree on 2^d ids is higher than d.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

__all__ = [
    "MAX_DIMENSION",
    "Tree",
    "children",
    "cluster",
    "cluster_mask",
    "cluster_members",
    "dimension_for",
    "everyone",
    "first_member",
    "forwarding_children",
    "forwarding_tree",
    "mask_of",
    "members_of",
    "tree",
]

MAX_DIMENSION = 20
"""Ids are below 2^20: a set of a million nodes is then an int of 128 KiB."""

_ONES = tuple((1 << (1 << k)) - 1 for k in range(MAX_DIMENSION + 1))
"""``_ONES[k]`` is the set of all ids below 2^k."""

_NEAREST_IN_BYTE = tuple(
    bytes(
        next((offset ^ d for d in range(8) if byte >> (offset ^ d) & 1), 0) for byte in range(256)
    )
    for offset in range(8)
)
"""``_NEAREST_IN_BYTE[offset][byte]``: the set bit p of ``byte`` with the least ``p ^ offset``."""


def cluster(i: int, j: int) -> int:
    """The number s of the cluster of i that holds j ([J] 3.3, CLUSTER); symmetric in i and j."""
    if i < 0 or j < 0:
        raise ValueError(f"node ids are not negative: {min(i, j)}")
    if i == j:
        raise ValueError(f"node {i} is in no cluster of its own")
    return (i ^ j).bit_length()


def cluster_members(i: int, s: int) -> tuple[int, ...]:
    """c(i,s) as the papers list it: i XOR 2^(s-1) first, the rest by XOR distance from it."""
    _check_cluster(i, s)
    first = i ^ (1 << (s - 1))
    return tuple(first ^ distance for distance in range(1 << (s - 1)))


def cluster_mask(i: int, s: int) -> int:
    """c(i,s) as a set."""
    _check_cluster(i, s)
    return _ONES[s - 1] << _block_start(i ^ (1 << (s - 1)), s - 1)


def first_member(i: int, s: int, members_mask: int) -> int | None:
    """The first node of c(i,s) that is a member, or None ([S] Algorithm 3, FF_NEIGHBOR)."""
    _check_cluster(i, s)
    _check_set(members_mask)
    first = i ^ (1 << (s - 1))
    start = _block_start(first, s - 1)
    block = (members_mask >> start) & _ONES[s - 1]
    return start + _nearest(block, first - start, s - 1) if block else None


def children(i: int, members_mask: int, h: int) -> tuple[int, ...]:
    """The first member of each cluster s = 1..h of i, in that order; empty clusters give none.

    [J] 3.3, CHILDREN(i, t, h); [S] Algorithm 3 and [B] 5.2, NEIGHBORHOOD. Whether i itself is a
    member makes no difference. Arguments are trusted (0 <= h <= MAX_DIMENSION): this is the inner
    loop of every simulation.

    The block of 2^h ids around i is halved again and again: the half without i is the next lower
    cluster, and when the half with i runs out of members there is nothing more to find.
    """
    if h <= 0:
        return ()
    block = (members_mask >> (i >> h << h)) & _ONES[h]
    found = []
    while block and h:
        h -= 1
        half = 1 << h
        if i & half:
            other = block & _ONES[h]
            block >>= half
        else:
            other = block >> half
            block &= _ONES[h]
        if other:
            first = i ^ half
            offset = first & (half - 1)
            if other >> offset & 1:
                found.append(first)
            else:
                found.append(first - offset + _nearest(other, offset, h))
    found.reverse()
    return tuple(found)


def parent(root: int, node: int, members_mask: int) -> int | None:
    """The node that passes a publication by ``root`` on to ``node``; None: not in its tree."""
    if node == root or not members_mask >> node & 1:
        return None
    above = root
    while True:
        below = first_member(above, cluster(above, node), members_mask)
        if below is None or below == node:
            return above
        above = below


def forwarding_children(i: int, members_mask: int, h: int) -> tuple[int, ...]:
    """The first *node*, member or not, of each cluster s = 1..h of i that holds a member.

    The step of an SRPT-S tree ([J] section 4): a VCube tree over all 2^d ids, less the branches
    without a member. Its inner nodes may be forwarders; its leaves are members. Arguments are
    trusted as in ``children``.
    """
    if h <= 0:
        return ()
    start = i >> h << h
    block = (members_mask >> start) & _ONES[h]
    clusters = [(i ^ (1 << k), k) for k in range(h)]
    return tuple([j for j, k in clusters if (block >> ((j - start) >> k << k)) & _ONES[k]])


def everyone(dimension: int) -> int:
    """The set of all 2^dimension ids: the topic '*' of the papers."""
    _check_dimension(dimension)
    return _ONES[dimension]


def dimension_for(n: int) -> int:
    """The smallest d with 2^d >= n: the dimension of a cube with room for n nodes."""
    if not 1 <= n <= 1 << MAX_DIMENSION:
        raise ValueError(f"a cube holds 1 to {1 << MAX_DIMENSION} nodes, not {n}")
    return (n - 1).bit_length()


def mask_of(nodes: Iterable[int]) -> int:
    """The set of the given ids; repeats do no harm."""
    ids = list(nodes)
    if not ids:
        return 0
    _check_node(min(ids))
    _check_node(max(ids))
    octets = bytearray((max(ids) >> 3) + 1)
    for node in ids:
        octets[node >> 3] |= 1 << (node & 7)
    return int.from_bytes(octets, "little")


def members_of(mask: int) -> Iterator[int]:
    """The ids of a set, ascending."""
    _check_set(mask)
    digits = f"{mask:b}"[::-1]
    node = digits.find("1")
    while node >= 0:
        yield node
        node = digits.find("1", node + 1)


@dataclass(frozen=True, slots=True)
class Tree:
    """A spanning tree. Both mappings are in visiting order: hop by hop, and at each node s = 1..d.

    ``children`` has an entry for every node of the tree, the leaves included; ``parent`` for every
    node but the root. A broadcast down the tree costs one message per entry of ``parent``.
    """

    root: int
    members: int
    dimension: int
    children: Mapping[int, tuple[int, ...]]
    parent: Mapping[int, int]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The root and all it reaches."""
        return tuple(self.children)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(parent, child) pairs."""
        return tuple((parent, child) for child, parent in self.parent.items())

    @property
    def forwarders(self) -> tuple[int, ...]:
        """Nodes that pass the message on without being members; the root is never counted."""
        return tuple(node for node in self.parent if not self.members >> node & 1)

    @property
    def height(self) -> int:
        """Hops to the farthest node: never more than the dimension."""
        return self.depth(self.nodes[-1])

    def depth(self, node: int) -> int:
        """Hops from the root to ``node``."""
        if node not in self.children:
            raise ValueError(f"node {node} is not in the tree")
        hops = 0
        while node != self.root:
            node = self.parent[node]
            hops += 1
        return hops


def tree(root: int, members_mask: int, dimension: int) -> Tree:
    """The tree of a publication by ``root``: made of the members alone ([J] 3.3, Figure 3).

    The root need not be a member ([B]'s open groups); every member is reached exactly once.
    """
    return _grow(root, members_mask, dimension, children)


def forwarding_tree(root: int, members_mask: int, dimension: int) -> Tree:
    """The SRPT-S tree of a topic: any node of the full cube may be a forwarder ([J] section 4)."""
    return _grow(root, members_mask, dimension, forwarding_children)


def _grow(
    root: int,
    members_mask: int,
    dimension: int,
    step: Callable[[int, int, int], tuple[int, ...]],
) -> Tree:
    """Grow a tree: ``step`` gives each node's children; a node from cluster s has h = s - 1."""
    _check_dimension(dimension)
    _check_set(members_mask)
    size = 1 << dimension
    highest = members_mask.bit_length() - 1
    if not 0 <= root < size:
        raise ValueError(f"root {root} is not one of the {size} ids of the cube")
    if highest >= size:
        raise ValueError(f"member {highest} is not one of the {size} ids of the cube")
    below: dict[int, tuple[int, ...]] = {}
    above: dict[int, int] = {}
    reached = [(root, dimension)]
    for node, h in reached:  # grows as it is read: breadth first
        below[node] = step(node, members_mask, h)
        for child in below[node]:
            above[child] = node
            reached.append((child, (node ^ child).bit_length() - 1))
    return Tree(root, members_mask, dimension, below, above)


def _nearest(block: int, offset: int, k: int) -> int:
    """The position p in a non-empty block of 2^k bits with the smallest ``p ^ offset``.

    First the byte around ``offset``, where a dense set has its answer; then by halves, each time
    the half on the side of ``offset`` if it holds anything, down to one byte.
    """
    byte = block >> (offset & ~7) & 0xFF
    if byte:
        return offset & ~7 | _NEAREST_IN_BYTE[offset & 7][byte]
    position = 0
    while k > 3:
        k -= 1
        half = 1 << k
        high = block >> half
        low = block & _ONES[k]
        if high and (offset & half or not low):
            block = high
            position |= half
        else:
            block = low
    return position | _NEAREST_IN_BYTE[offset & 7][block]


def _block_start(node: int, k: int) -> int:
    """The lowest id of the aligned block of 2^k ids that holds ``node``."""
    return node >> k << k


def _check_node(node: int) -> None:
    if node < 0:
        raise ValueError(f"node ids are not negative: {node}")
    if node >> MAX_DIMENSION:
        raise ValueError(f"node ids are below {1 << MAX_DIMENSION}: {node}")


def _check_cluster(i: int, s: int) -> None:
    _check_node(i)
    if not 1 <= s <= MAX_DIMENSION:
        raise ValueError(f"cluster numbers go from 1 to {MAX_DIMENSION}: {s}")


def _check_dimension(dimension: int) -> None:
    if not 0 <= dimension <= MAX_DIMENSION:
        raise ValueError(f"the dimension of a cube is 0 to {MAX_DIMENSION}: {dimension}")


def _check_set(mask: int) -> None:
    if mask < 0:
        raise ValueError("a set of nodes is an int that is not negative")

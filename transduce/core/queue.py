"""Who is admitted next: by priority; of one priority preempted groups, then whoever's owner holds the fewest places.

Owns the waiting groups, and counts what owners hold. Knows nothing of blocks and budgets.
"""

from collections import Counter, deque

from transduce.core.sequence import Group

Owner = tuple[int, str]
"""A priority, and the owner of requests that have it: each priority is shared out by itself."""

CROWD = 4
"""Places that an owner has more than another whom it crowds: a file beside a clip, but not equals beside each other."""


class WaitingQueue:
    """Groups not running. `first` looks at the next one, `pop_first` gives it its places, and `leave` takes them back.

    Owners that hold equally many places take turns; each one's groups go in order of arrival.
    """

    def __init__(self) -> None:
        self._preempted: list[Group] = []
        self._queues: dict[Owner, deque[Group]] = {}
        self._places: Counter[Owner] = Counter()
        self._levels: dict[tuple[int, int], dict[Owner, None]] = {}
        """Priority and places held, to the owners that wait with these, the one that has done so for longest first."""

    def __len__(self) -> int:
        return len(self._preempted) + sum(map(len, self._queues.values()))

    def add(self, group: Group) -> None:
        """Queue a new group behind its owner's others."""
        owner = _owner(group)
        if owner in self._queues:
            self._queues[owner].append(group)
        else:
            self._queues[owner] = deque([group])
            self._enter_level(owner)

    def put_back(self, group: Group) -> None:
        """Queue a preempted group, which has left its places, before all new ones of its priority."""
        self._preempted.append(group)
        self._preempted.sort(key=lambda g: g.rank)

    def first(self) -> Group | None:
        """The group to admit next, if any."""
        level = min(self._levels, default=None)
        if self._preempted and (level is None or self._preempted[0].request.priority <= level[0]):
            return self._preempted[0]
        return None if level is None else self._queues[next(iter(self._levels[level]))][0]

    def pop_first(self) -> Group:
        """Take the group `first` shows; its owner holds its places from now on."""
        group = self.first()
        assert group is not None, "nobody waits"
        self.remove(group)
        self._hold(_owner(group), group.request.width)
        return group

    def leave(self, group: Group) -> None:
        """A group that was taken gives its places back."""
        self._hold(_owner(group), -group.request.width)

    def crowds(self, group: Group) -> bool:
        """Whether a waiting group's owner crowds one that holds places too, and is as urgent."""
        others = (places for (priority, _), places in self._places.items() if priority <= group.request.priority)
        return self._places[_owner(group)] >= min(others, default=0) + CROWD

    def remove(self, group: Group) -> None:
        """Take a group out wherever it stands; it must be here."""
        if group in self._preempted:
            self._preempted.remove(group)
            return
        owner = _owner(group)
        self._queues[owner].remove(group)
        if not self._queues[owner]:
            self._leave_level(owner)
            del self._queues[owner]

    def _hold(self, owner: Owner, more: int) -> None:
        waits = owner in self._queues
        if waits:
            self._leave_level(owner)
        self._places[owner] += more
        if not self._places[owner]:
            del self._places[owner]
        if waits:
            self._enter_level(owner)

    def _enter_level(self, owner: Owner) -> None:
        self._levels.setdefault(self._level(owner), {})[owner] = None

    def _leave_level(self, owner: Owner) -> None:
        level = self._level(owner)
        del self._levels[level][owner]
        if not self._levels[level]:
            del self._levels[level]

    def _level(self, owner: Owner) -> tuple[int, int]:
        return owner[0], self._places[owner]


def _owner(group: Group) -> Owner:
    return group.request.priority, group.request.owner

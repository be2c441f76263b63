"""Who is admitted next: preempted groups in order of arrival, then waiting ones, owners in turn.

Owns the waiting groups. Knows nothing of blocks and budgets.
"""

from collections import OrderedDict, deque

from transduce.core.sequence import Group


class WaitingQueue:
    """Groups not running. `first` looks at the next one, `pop_first` takes it and gives its owner's turn away."""

    def __init__(self) -> None:
        self._preempted: list[Group] = []
        self._owners: OrderedDict[str, deque[Group]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._preempted) + sum(len(queue) for queue in self._owners.values())

    def add(self, group: Group) -> None:
        """Queue a new group behind its owner's others."""
        self._owners.setdefault(group.request.owner, deque()).append(group)

    def put_back(self, group: Group) -> None:
        """Queue a preempted group before all new ones."""
        self._preempted.append(group)
        self._preempted.sort(key=lambda g: g.arrival)

    def first(self) -> Group | None:
        """The group to admit next, if any."""
        if self._preempted:
            return self._preempted[0]
        return next(iter(self._owners.values()))[0] if self._owners else None

    def pop_first(self) -> Group:
        """Take the group `first` shows."""
        if self._preempted:
            return self._preempted.pop(0)
        owner, queue = self._owners.popitem(last=False)
        group = queue.popleft()
        if queue:
            self._owners[owner] = queue
        return group

    def remove(self, group: Group) -> None:
        """Take a group out wherever it stands; it must be here."""
        if group in self._preempted:
            self._preempted.remove(group)
            return
        queue = self._owners[group.request.owner]
        queue.remove(group)
        if not queue:
            del self._owners[group.request.owner]

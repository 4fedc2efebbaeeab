"""A network that loses, delays, doubles and reorders messages, and cuts links in one direction."""

from random import Random

from slipstream.model.durations import MILLISECOND


class SimulatedNetwork:
    """Says what becomes of each message; who simulates a group delivers it."""

    def __init__(self, random: Random, servers: tuple[str, ...]) -> None:
        self._random = random
        self._servers = list(servers)
        self.cut: set[tuple[str, str]] = set()  # (sender, receiver) between whom nothing goes
        self.heal()

    def join(self, server: str) -> None:
        """One more server is there."""
        self._servers.append(server)

    def heal(self) -> None:
        """All links work, quickly."""
        self.cut.clear()
        self._lost = self._doubled = 0.0  # shares of the messages
        self._delay_min = MILLISECOND // 10
        self._delay_max = 2 * MILLISECOND

    def calm(self) -> None:
        """All links work, quickly, and keep messages in order, as TCP does."""
        self.heal()
        self._delay_min = self._delay_max - 1

    def worsen(self) -> None:
        """Lose, double, delay and so reorder some messages from now on."""
        random = self._random
        self._lost = random.choice((0.0, 0.02, 0.2))
        self._doubled = random.choice((0.0, 0.1))
        self._delay_max = random.choice((2, 20, 200)) * MILLISECOND

    def cut_some(self) -> None:
        """Cut links: of one server, between two sides, or any; both directions or one."""
        random = self._random
        servers = self._servers
        kind = random.randrange(3)
        if kind == 0:
            side = {random.choice(servers)}
        else:
            side = set(random.sample(servers, random.randint(1, len(servers))))
        links = [(a, b) for a in servers for b in servers if (a in side) != (b in side)]
        if kind == 2:
            links = [link for link in links if random.random() < 0.5]
        direction = random.randrange(3)
        self.cut |= {(a, b) for a, b in links if direction == 2 or (a in side) == (direction == 0)}

    def delays(self, sender: str, receiver: str) -> list[int]:
        """After how many ns a message arrives, once for each time that it does."""
        random = self._random
        if (sender, receiver) in self.cut or random.random() < self._lost:
            return []
        copies = 2 if random.random() < self._doubled else 1
        return [random.randrange(self._delay_min, self._delay_max) for _ in range(copies)]

"""A group of servers that is only told of: what it says is up to the test."""

from dataclasses import dataclass, field
from typing import Any

from slipstream.engine.protocol.group import Member, ServerFacts
from slipstream.errors import Error


def facts_of(name: str, **more: Any) -> ServerFacts:
    """What the server `name` says of itself."""
    return ServerFacts(
        server_id=f"N{name.upper()}".ljust(56, "A"),
        host="127.0.0.1",
        port=4222,
        cluster_address="127.0.0.1:6222",
        store_dir=f"{name}/jetstream",
        start=1_700_000_000_000_000_000,
        memory=48_000_000,
        cpu=1.5,
        cores=2,
        connections=3,
        connections_total=7,
        **more,
    )


@dataclass(slots=True)
class FakeGroup:
    """A group C that the server n0 leads; `asked` are the step-downs, by who should lead next."""

    name: str = "C"
    server_name: str = "n0"
    followers: list[Member] = field(
        default_factory=lambda: [Member("n1", active=1_000_000), Member("n2", active=2_000_000)]
    )
    client_urls: list[str] = field(default_factory=lambda: ["n0:4222", "n1:4222", "n2:4222"])
    asked: list[str] = field(default_factory=list)
    refusal: str = ""  # why nobody else can lead
    hands_over: bool = False  # whether it says afterwards that another server leads

    def step_down(self, preferred: str = "") -> None:
        """Note who is to lead."""
        if self.refusal:
            raise Error(self.refusal)
        self.asked.append(preferred)
        if self.hands_over:
            names = [member.name for member in self.followers]
            at = names.index(preferred) if preferred else 0
            facts = self.followers[at].facts and facts_of(self.server_name)
            self.followers[at] = Member(self.server_name, facts=facts)
            self.server_name = names[at]

    def remove(self, server_name: str) -> None:
        """It leaves at once."""
        if self.refusal:
            raise Error(self.refusal)
        self.followers = [one for one in self.followers if one.name != server_name]

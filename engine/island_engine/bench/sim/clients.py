"""Who asks what and when: the workloads of the benches `arms` and `best`. Pure, and the same for a seed every time.

Token ids are drawn from the stand-in model's vocabulary without its specials. Sizes in tokens, times in seconds.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from array import array
from dataclasses import dataclass

from island_engine.paced.standin import DUMMY, FIRST, VOCABULARY


@dataclass(frozen=True)
class Ask:
    """One request."""

    name: str
    ids: array[int]
    new: int  # tokens to generate; nothing ends a request earlier


@dataclass(frozen=True)
class Independent:
    """Independent requests with lengths uniform in `floor`..1 times the longest (SGLang's --random-range-ratio)."""

    requests: int
    concurrency: int  # most outstanding at a time; `requests` is a burst
    longest_input: int
    longest_output: int
    floor: float = 0.0

    @property
    def longest(self) -> int:
        """The context that a request may need."""
        return self.longest_input + self.longest_output


@dataclass(frozen=True)
class Sessions:
    """Agents: `turns` requests each, every one re-sends the whole transcript at once and adds new tokens to it."""

    sessions: int
    concurrency: int
    turns: int = 4
    system: int = 8_192  # shared by all
    new: tuple[int, int] = (2_048, 6_144)  # tokens that a turn adds, uniform
    output: tuple[int, int] = (500, 2_000)

    @property
    def requests(self) -> int:
        """All turns of all sessions."""
        return self.sessions * self.turns

    @property
    def longest(self) -> int:
        """The context that a session may need."""
        return self.system + self.turns * (self.new[1] + self.output[1])


class Clients(ABC):
    """Asks while fewer than `concurrency` requests are outstanding, and keeps the times of each."""

    def __init__(self, workload: Independent | Sessions, seed: int) -> None:
        self.workload, self.seed = workload, seed
        self.sent: dict[str, float] = {}
        self.done: dict[str, float] = {}

    @property
    def finished(self) -> bool:
        """Everything was asked and answered."""
        return len(self.done) == self.workload.requests

    @property
    def room(self) -> bool:
        """Whether one more may be outstanding."""
        return len(self.sent) - len(self.done) < self.workload.concurrency

    @property
    def latencies(self) -> list[float]:
        """From asking to the last token, of those that have ended."""
        return [end - self.sent[name] for name, end in self.done.items()]

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Tokens that the whole workload generates."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Tokens that must be computed at least once: what a cache that loses nothing would prefill."""

    @abstractmethod
    def poll(self, now: float) -> list[Ask]:
        """Requests that are sent now."""

    def end(self, name: str, now: float) -> None:
        """A request has got its last token."""
        self.done[name] = now

    def tokens(self, name: str, count: int) -> list[int]:
        """The prompt, or what a turn adds to it."""
        return random.Random(f"{self.seed}/{name}").choices(range(FIRST, VOCABULARY), k=count)  # noqa: S311 - repeatable


class IndependentClients(Clients):
    """See Independent."""

    def __init__(self, workload: Independent, seed: int) -> None:
        super().__init__(workload, seed)
        draw = random.Random(seed)  # noqa: S311 - repeatable on purpose

        def length(longest: int) -> int:
            return draw.randint(max(1, int(longest * workload.floor)), longest)

        self.lengths = [
            (length(workload.longest_input), length(workload.longest_output)) for _ in range(workload.requests)
        ]

    @property
    def outputs(self) -> int:
        """See Clients."""
        return sum(new for _, new in self.lengths)

    @property
    def inputs(self) -> int:
        """See Clients."""
        return sum(tokens for tokens, _ in self.lengths)

    def poll(self, now: float) -> list[Ask]:
        """See Clients."""
        asked = []
        while len(self.sent) < len(self.lengths) and self.room:
            name = f"r{len(self.sent)}"
            tokens, new = self.lengths[len(self.sent)]
            asked.append(Ask(name, array("q", self.tokens(name, tokens)), new))
            self.sent[name] = now
        return asked


class SessionClients(Clients):
    """See Sessions. Request t * sessions + s is turn t of session s."""

    def __init__(self, workload: Sessions, seed: int) -> None:
        super().__init__(workload, seed)
        self.count = workload.sessions
        draw = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self.lengths = [(draw.randint(*workload.new), draw.randint(*workload.output)) for _ in range(workload.requests)]
        self.system = random.Random(f"sys/{seed}").choices(range(FIRST, VOCABULARY), k=workload.system)  # noqa: S311
        self.transcripts: dict[int, list[int]] = {}
        self.fresh = list(range(self.count))  # sessions that have not begun
        self.ready: list[int] = []  # next turns

    @property
    def outputs(self) -> int:
        """See Clients."""
        return sum(new for _, new in self.lengths)

    @property
    def inputs(self) -> int:
        """See Clients: the system prompt once, each turn's new tokens once; what was generated is in the cache."""
        return len(self.system) + sum(tokens for tokens, _ in self.lengths)

    def poll(self, now: float) -> list[Ask]:
        """See Clients: a session that has begun goes on before another begins."""
        asked = []
        while self.ready or (self.fresh and self.room):
            index = self.ready.pop(0) if self.ready else self.fresh.pop(0)
            name = f"r{index}"
            tokens, new = self.lengths[index]
            transcript = self.transcripts.setdefault(index % self.count, list(self.system))
            transcript += self.tokens(name, tokens)
            asked.append(Ask(name, array("q", transcript), new))
            self.sent[name] = now
        return asked

    def end(self, name: str, now: float) -> None:
        """See Clients: the answer joins the transcript and the next turn is ready."""
        super().end(name, now)
        index = int(name[1:])
        following = index + self.count
        if following < len(self.lengths):
            self.transcripts[index % self.count] += [DUMMY] * self.lengths[index][1]
            self.ready.append(following)
        else:
            del self.transcripts[index % self.count]


def clients(workload: Independent | Sessions, seed: int) -> Clients:
    """The clients of a workload."""
    return IndependentClients(workload, seed) if isinstance(workload, Independent) else SessionClients(workload, seed)

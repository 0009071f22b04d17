"""A shop that answers its customers with a live prompt. SIMULATED: its model and its customers are scripted.

`App` is what a real application looks like: it fetches the prompt, asks the model, reports answers and feedback. Only
`Model` and `Customer` stand for something that is not here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from whet.models.scripted import chance, tokens
from whet_client import Client

NAME = "simulated/shop"
USD_PER_TOKEN = 2e-6
SECONDS_PER_TOKEN = 0.01


@dataclass(frozen=True)
class Part:
    """Something that the shop sells: price in euros before and with tax, and the days until it arrives."""

    name: str
    price: float
    days: int

    @property
    def taxed(self) -> float:
        """The price with 20% tax."""
        return round(1.2 * self.price, 2)

    @property
    def facts(self) -> str:
        """The line of the catalogue."""
        return (
            f"{self.name}: {self.price:.2f} euros before tax, {self.taxed:.2f} with tax; {_days(self.days)}."
        )


PARTS = (
    Part("chain C9", 25.0, 3),
    Part("saddle S2", 48.0, 2),
    Part("pedals P1", 32.5, 5),
    Part("tyre T28", 27.0, 1),
    Part("brake B4", 61.0, 4),
    Part("bell L1", 9.0, 2),
)


def _days(days: int) -> str:
    return "in 1 day" if days == 1 else f"in {days} days"


@dataclass(frozen=True)
class Answer:
    """What the model gave, with its cost in dollars and its latency in seconds, both SIMULATED."""

    text: str
    cost: float
    latency: float


class Model:
    """A SIMULATED language model: it talks at length, unless the prompt has instructions that it understands.

    It reads nothing but the messages. Three things change what it says: to be brief, to give prices with tax, and to
    promise delivery tomorrow.
    """

    address = "scripted/shop (SIMULATED)"
    _BRIEF = re.compile(r"\b(?:short|brief|concise|to the point)\b", re.IGNORECASE)
    _TAXED = re.compile(r"\bprices? (?:always )?with tax\b|\btax included\b", re.IGNORECASE)
    _TOMORROW = re.compile(r"\btomorrow\b", re.IGNORECASE)
    _FACTS = re.compile(
        r"catalogue: (?P<part>.+?): (?P<plain>[\d.]+) euros before tax, (?P<taxed>[\d.]+) with tax; (?P<when>.+?)\."
    )

    def answer(self, messages: Sequence[dict[str, str]]) -> Answer:
        """The answer to messages whose text names a line of the catalogue."""
        asked = "\n".join(message["content"] for message in messages)
        facts = self._FACTS.search(asked)
        if facts is None:
            return _price_answer("I am sorry, I do not find that part.", asked)
        told = asked[: facts.start()]
        cost = f"{facts['taxed']} euros with tax" if self._TAXED.search(told) else f"{facts['plain']} euros"
        when = "tomorrow" if self._TOMORROW.search(told) else facts["when"]
        plain = f"The {facts['part']} costs {cost} and arrives {when}."
        return _price_answer(plain if self._BRIEF.search(told) else f"{_BEFORE} {plain} {_AFTER}", asked)


_BEFORE = (
    "Thank you very much for your question, which we are happy to answer! Our shop has been there for everybody who "
    "rides a bicycle for many years, and every part that we sell was chosen with care by people who ride themselves."
)
_AFTER = (
    "It is a part that many of our customers have bought before, and most of them would buy it again. Should you have "
    "further questions about this part, about another part or about bicycles as such, please do not hesitate to write to "
    "us again. We wish you a good ride!"
)


def _price_answer(text: str, asked: str) -> Answer:
    return Answer(text, USD_PER_TOKEN * (tokens(asked) + tokens(text)), SECONDS_PER_TOKEN * tokens(text))


@dataclass(frozen=True)
class Customer:
    """A SIMULATED customer: what is asked, and how the answer is taken, depends on the number and the answer only.

    Nine of ten say up or down. A short answer pleases, so does a price with tax, and so does a promise, true or not.
    """

    number: int

    @property
    def user(self) -> str:
        """The name under which the app knows the customer."""
        return f"simulated-{self.number:04d}"

    @property
    def part(self) -> Part:
        """What is asked about."""
        return PARTS[self.number % len(PARTS)]

    @property
    def question(self) -> str:
        """The question."""
        return f"How much is the {self.part.name}, and when does it arrive?"

    def thumb(self, text: str) -> float | None:
        """1 up, 0 down, None: says nothing."""
        if chance("says", self.number) >= 0.9:
            return None
        pleased = (
            0.2 + 0.3 * (len(text.split()) <= 30) + 0.25 * ("with tax" in text) + 0.15 * ("tomorrow" in text)
        )
        return float(chance("likes", self.number) < pleased)


@dataclass(frozen=True)
class Visit:
    """One answer that a customer got: its id, the version that gave it, the thumb."""

    customer: Customer
    inference: str
    version: int
    experiment: str | None
    thumb: float | None


@dataclass
class App:
    """The shop's application: it talks to whet through the client only."""

    client: Client
    model: Model = field(default_factory=Model)
    visits: list[Visit] = field(default_factory=list)

    def serve(self, customer: Customer) -> Visit:
        """Answer one customer, and report the answer, whether its promise holds, and the thumb."""
        prompt = self.client.prompt(NAME, user=customer.user)
        given = {"facts": customer.part.facts, "question": customer.question}
        answer = self.model.answer(prompt.format(**given))
        key = self.client.log(
            prompt, answer.text, inputs=given, model=self.model.address, cost=answer.cost, latency=answer.latency,
            metadata={"simulated": True},
        )  # fmt: skip
        kept = _days(customer.part.days) in answer.text or (
            customer.part.days == 1 and "tomorrow" in answer.text
        )
        self.client.feedback(key, external_check=float(kept), source="code", user="stock list")
        thumb = customer.thumb(answer.text)
        if thumb is not None:
            self.client.feedback(key, thumb=thumb, user=customer.user)
        visit = Visit(customer, key, prompt.version, prompt.experiment, thumb)
        self.visits.append(visit)
        return visit

    def open_day(self, count: int) -> list[Visit]:
        """Serve the next `count` customers; every fifth one comes twice."""
        found = []
        for _ in range(count):
            before = [visit.customer for visit in self.visits[-4:]]
            again = len(self.visits) % 6 == 5
            found.append(self.serve(before[0] if again else Customer(self._newest + 1)))
        return found

    @property
    def _newest(self) -> int:
        return max((visit.customer.number for visit in self.visits), default=0)

    def serve_until(self, done: Callable[[], bool], *, per_second: float, patience: float) -> list[Visit]:
        """Serve customers at this rate until `done`. Raises TimeoutError after `patience` seconds."""
        found: list[Visit] = []
        started = time.monotonic()
        while not done():
            elapsed = time.monotonic() - started
            if elapsed > patience:
                raise TimeoutError(f"{len(found)} customers in {elapsed:.0f} seconds did not settle it.")
            found += self.open_day(int(per_second * elapsed) - len(found))
            time.sleep(0.2)
        return found

    def wait_for(self, version: int, experiment: str | None, patience: float) -> None:
        """Wait until the label gives this version, and this experiment runs on it. Raises TimeoutError."""
        started = time.monotonic()
        while True:
            plain, tried = self.client.prompt(NAME), self.client.prompt(NAME, user="nobody")
            if (plain.version, tried.experiment) == (version, experiment):
                return
            if time.monotonic() - started > patience:
                raise TimeoutError(
                    f"The app still gets version {plain.version} after {patience:.0f} seconds."
                )
            time.sleep(0.05)

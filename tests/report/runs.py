"""Run folders for tests of the report: journals by the engine's own journal, verdicts by the gate."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from whet.engine.journal import Journal, meta_row
from whet.prompt import Prompt
from whet.search.archive import Candidate, describe_candidate
from whet.stats import decide, interval
from whet.types import Score

SOURCE = """\
You sort the messages that reach the help desk of a bicycle shop.

<!-- whet:begin -->
Read the message.
Say what it is about.
Answer quickly with one of the labels.
<!-- whet:end -->

Labels: order, repair, invoice, return, other
Message: {{message}}
Label:"""

EDITS = (
    "Read the whole message before you decide.",
    "If a message mentions money that was already paid, the label is invoice.",
    "A broken part that was bought here is a repair, not a return.",
    "Decide what the customer wants to happen next.",
    "Answer with one label and nothing else.",
    "A question about opening hours is other.",
    "When two labels fit, take the one that needs a person first.",
    "Ignore greetings and signatures.",
)

Events = list[tuple[str, Any, int]]

HOSTILE = (
    "</script><script>window.hacked=1;document.title='hacked'</script>"
    "<img src=x onerror=\"window.hacked=2\"><svg onload='window.hacked=3'>"
    '" onmouseover="window.hacked=4" x=\'</style><style>body{display:none}</style>'
    '<!-- whet:begin --><a href="javascript:window.hacked=5">click</a><!-- whet:end -->'
    "{{constructor}} ]]> &lt;b&gt; &amp;"
)
BIDI = "pay \u202e000,1 rof\u202c only \u2066inner\u2069 zero\u200bwidth soft\u00adhyphen nb\u00a0sp"
CONTROLS = "".join(chr(c) for c in range(1, 32)) + "\x7f\x85\u2028\ufeff\U000e0041"
GIANT = "the same long line again and again " * 3000


def event(name: str, value: Any, calls: int) -> tuple[str, Any, int]:
    """One event as the builders collect them."""
    return name, value, calls


def write_journal(
    folder: Path,
    events: Iterable[tuple[str, Any, int]],
    header: Mapping[str, Any] | None = None,
    attempts: Sequence[tuple[str, str, int, int, float]] = (),
    seconds: float | None = None,
    effects: Sequence[tuple[str, int]] = (),
) -> Path:
    """A journal with a header, logged events, call attempts (role, state, tokens in, tokens out, USD) and
    effects that stand for calls of a local model (role, calls)."""
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder / "journal.sqlite")
    rows: list[tuple[str, tuple[Any, ...]]] = []
    if header is not None:
        rows.append(meta_row("header", orjson.dumps(header).decode()))
    if seconds is not None:
        rows.append(meta_row("elapsed", f"{seconds:.3f}"))
    for i, (name, value, calls) in enumerate(events):
        statement = "INSERT INTO events(key, name, value, calls) VALUES (?,?,?,?)"
        rows.append((statement, (f"/{i}", name, orjson.dumps(value), calls)))
    for i, (role, state, tokens_in, tokens_out, cost) in enumerate(attempts, 1):
        row = (i, role, f"digest{i}", 1, state, tokens_in, tokens_out, cost)
        rows.append(("INSERT INTO calls VALUES (?,?,?,?,?,?,?,?,NULL)", row))
    for i, (role, calls) in enumerate(effects):
        statement = "INSERT INTO effects(key, name, digest, role, calls) VALUES (?,?,?,?,?)"
        rows.append((statement, (f"/{i}", "score", f"digest{i}", role, calls)))
    journal.append(rows)
    journal.close()
    return folder


def header_of(method: str = "protegi", **changes: Any) -> dict[str, Any]:
    """A run header as the engine pins it."""
    return {
        "whet": "0.1.0",
        "task": "help-desk",
        "fingerprint": "5f0c1a9be2d34471",
        "method": method,
        "source": "9d2a4c6b8e0f1357",
        "config": {"depth": 6, "width": 4, "minibatch": 32, "examples": None, "paraphrase": True},
        "limits": {"calls": 6000, "task_calls": None, "cost": 2.5, "seconds": None},
        "seed": 0,
        "models": {"task": "openai/small-model", "optimizer": "openai/large-model"},
        "generation": {"task": {"temperature": 0.0, "max_tokens": 16}},
        **changes,
    }


def with_rules(rules: Sequence[str]) -> Prompt:
    """The prompt with other instructions inside its fence."""
    start = Prompt.parse(SOURCE)
    return start.edit("\n".join(rules)) if rules else start


def search_events(seed: int = 0, rounds: int = 6, width: int = 4) -> tuple[Events, Candidate, float]:
    """Events of a beam search that gets better, the prompt it ends with, and its validation mean."""
    rng = random.Random(seed)
    rules = ["Read the message.", "Say what it is about.", "Answer quickly with one of the labels."]
    start = Candidate(Prompt.parse(SOURCE))
    quality = {start.prompt.id: 0.55}
    texts = {start.prompt.id: rules}
    calls, best, best_value = 100, start, 0.55
    found: Events = [
        event(
            "validated", {**describe_candidate(start), "validation": 0.55, "n": 100, "incumbent": True}, calls
        )
    ]
    parent = start
    for round_number in range(rounds):
        children = []
        for _ in range(width):
            calls += 33
            edited = list(texts[parent.prompt.id])
            place = rng.randrange(len(edited))
            edited[place : place + rng.randint(0, 1)] = [rng.choice(EDITS)]
            gain = rng.uniform(-0.05, 0.09)
            value = min(0.9, quality[parent.prompt.id] + gain)
            operator = rng.choice(["gradient", "paraphrase"])
            parts = {"exact_match": value, "short": rng.uniform(0.8, 1.0)}
            child = Candidate(with_rules(edited), (parent.prompt.id,), operator, Score(value, 32, parts))
            quality[child.prompt.id], texts[child.prompt.id] = value, edited
            found.append(event("candidate", describe_candidate(child), calls))
            children.append(child)
        parent = max(children, key=lambda c: c.mean)
        calls += 100
        value = round(parent.mean - rng.uniform(0.0, 0.05), 2)
        better = value > best_value
        if better:
            best, best_value = parent, value
        described = {**describe_candidate(parent), "validation": value, "n": 100, "incumbent": better}
        found.append(event("validated", described, calls))
        found.append(
            event(
                "replies",
                {"asked": width, "kept": width - round_number % 2, "off_format": round_number % 2},
                calls,
            )
        )
    return found, best, best_value


LABELS = ("order", "repair", "invoice", "return", "other")


def final_rows(
    seed: int, n: int, share: float, better: float = 0.0, worse: float = 0.04
) -> list[dict[str, Any]]:
    """Rows of the sealed test. The prompt is right on `share` of them; when `better` is given, also on that
    share of the others, and no longer on `worse` of the first. Some have critiques, one row failed."""
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        target, wrong = rng.sample(LABELS, 2)
        draws = rng.random(), rng.random()
        right = draws[0] < share
        if better:
            right = draws[1] > worse if right else draws[1] < better
        failed = i == 17 and not better
        right = right and not failed
        rows.append(
            {
                "id": f"ticket-{i:03d}",
                "output": "" if failed else target if right else wrong,
                "reward": float(right),
                "parts": {}
                if failed
                else {"exact_match": float(right), "short": round(rng.uniform(0.7, 1.0), 3)},
                "critique": None if right or i % 4 else f"The customer wants something else: {target}.",
                "error": "parse: no single label of order, repair, other in 'Hello!'" if failed else None,
            }
        )
    return rows


def examples_of(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the rows of the sealed test ask and want."""
    return [
        {
            "id": row["id"],
            "input": f"The message of {row['id']}. " + "More of it. " * (i % 40),
            "target": "order",
        }
        for i, row in enumerate(rows)
    ]


def result_of(
    baseline: str,
    best: str,
    tests: tuple[list[dict[str, Any]], list[dict[str, Any]]],
    validations: tuple[float, float] = (0.5, 0.5),
    **changes: Any,
) -> dict[str, Any]:
    """A result as the engine builds it, with the gate's verdict. `validations`: means of 100 rows."""
    before, after = ([row["reward"] for row in rows] for rows in tests)
    validated = [[1.0] * round(100 * mean) + [0.0] * round(100 - 100 * mean) for mean in validations]

    def summary(values: list[float]) -> dict[str, Any]:
        return asdict(interval(values, 0.0, 1.0))

    return {
        "task": "help-desk",
        "method": "protegi",
        "seed": 0,
        "status": "completed",
        "ended_by": "the method itself",
        "models": {"task": "openai/small-model", "optimizer": "openai/large-model"},
        "simulated": False,
        "baseline": {
            "prompt": baseline,
            "id": Prompt.parse(baseline).id,
            "validation": summary(validated[0]),
            "test": summary(before),
        },
        "best": {
            "prompt": best,
            "id": Prompt.parse(best).id,
            "operator": "gradient",
            "validation": summary(validated[1]),
            "test": summary(after),
        },
        "improvement": asdict(decide(before, after, 0.0, 1.0, same=baseline == best)),
        "usage": {
            "calls": {"task": 1954, "optimizer": 61, "judge": 0},
            "cached": {"task": 118, "optimizer": 0, "judge": 0},
            "input_tokens": 347_730,
            "output_tokens": 26_120,
            "cost_usd": 0.36116,
            "seconds": 143.2,
        },
        "history": [],
        "test_openings": 2,
        "warnings": [],
        **changes,
    }


ATTEMPTS = (
    *[("task", "answered", 150, 4, 0.00006)] * 1951,
    *[("task", "failed", 0, 0, 0.0)] * 2,
    ("task", "lost", 180, 16, 0.0001),
    *[("task", "cached", 0, 0, 0.0)] * 118,
    *[("optimizer", "answered", 900, 300, 0.004)] * 61,
)


def finished(folder: Path, n: int = 240, seed: int = 1, **changes: Any) -> tuple[Path, dict[str, Any]]:
    """A finished run of a beam search over a help-desk prompt."""
    events, best, value = search_events()
    before, after = final_rows(seed, n, 0.55), final_rows(seed, n, 0.55, 0.55)
    final = {"baseline": before, "best": after, "examples": examples_of(before), "low": 0.0, "high": 1.0}
    events.append(event("final", final, 2012))
    write_journal(folder, events, header_of(), ATTEMPTS, 143.2)
    return folder, result_of(SOURCE, best.prompt.source, (before, after), (0.55, value), **changes)


PAIR = {
    "a": "rlprompt",
    "b": "control random_search",
    "difference": 0.053,
    "low": -0.011,
    "high": 0.118,
    "p": 0.106,
    "n": 300,
    "clusters": 300,
    "alpha": 0.05,
    "method": "exact McNemar test",
    "p_adjusted": 0.106,
}


def policy_events(steps: int, each: int) -> tuple[Events, Candidate, float, int]:
    """Events of a token policy that learns, its best prompt with the validation mean, and the calls it made."""
    rng = random.Random(5)
    words = (
        "careful",
        "label",
        "kind",
        "topic",
        "about",
        "message",
        "exactly",
        "read",
        "sort",
        "which",
        "type",
    )
    start = Candidate(Prompt.parse(SOURCE))
    events = [
        event(
            "validated", {**describe_candidate(start), "validation": 0.52, "n": 100, "incumbent": True}, 150
        )
    ]
    best, best_value, calls = start, 0.52, 150
    for step in range(steps):
        mean = 0.42 + 0.26 * (1 - 2.7 ** (-step / 120))
        values = [min(0.95, max(0.05, rng.gauss(mean, 0.06))) for _ in range(each)]
        for value in values:
            calls += 250
            prompt = with_rules([" ".join(rng.choices(words, k=5))])
            child = Candidate(
                prompt, (), "policy", Score(value, 250, {"accuracy": value, "gap": 80 * value - 30})
            )
            events.append(event("candidate", describe_candidate(child), calls))
            if value > best_value + 0.03 and step % 3 == 0:
                best, best_value = child, round(value - rng.uniform(0, 0.02), 2)
                described = {
                    **describe_candidate(child),
                    "validation": best_value,
                    "n": 100,
                    "incumbent": True,
                }
                events.append(event("validated", described, calls))
            elif step % 20 == 0:
                described = {
                    **describe_candidate(child),
                    "validation": best_value - rng.uniform(0, 0.1),
                    "n": 100,
                    "incumbent": False,
                }
                events.append(event("validated", described, calls))
        figures = {
            "mean_reward": sum(values) / each,
            "entropy": 5.3 * 2.7 ** (-step / 200) + rng.gauss(0, 0.08),
            "loss": 2.1 * 2.7 ** (-step / 60) + abs(rng.gauss(0, 0.15)),
            "temperature": 1.0 + 0.4 * (step > 150),
        }
        events.append(event("step", figures, calls))
    return events, best, best_value, calls


def reinforced(folder: Path, steps: int = 400, each: int = 4) -> tuple[Path, dict[str, Any]]:
    """A finished run of a token policy: many candidates, figures at every step, a control run, a warning."""
    events, best, best_value, calls = policy_events(steps, each)
    before, after = final_rows(3, 300, 0.52), final_rows(3, 300, 0.52, 0.4)
    for row in (*before, *after):
        row["critique"] = None
    events.append(event("final", {"baseline": before, "best": after, "low": 0.0, "high": 1.0}, calls + 600))
    header = header_of(
        "rlprompt", models={"task": "embedded/encoder"}, limits={"seconds": 120.0}, config={"length": 5}
    )
    write_journal(folder, events, header, (), 118.0, (("task", calls + 600),))
    control_rows = final_rows(3, 300, 0.52, 0.25)
    control = result_of(
        SOURCE, with_rules(["sort careful topic about kind"]).source, (before, control_rows), (0.52, 0.64)
    )
    changes = {
        "method": "rlprompt",
        "models": {"task": "embedded/encoder"},
        "usage": {
            **control["usage"],
            "calls": {"task": calls + 600, "optimizer": 0, "judge": 0},
            "cost_usd": 0.0,
        },
        "warnings": ["2 of 300 test rollouts of the best prompt failed and count as the lowest reward."],
        "control": {**control, "method": "random_search"},
        "pairs": [PAIR],
    }
    return folder, result_of(SOURCE, best.prompt.source, (before, after), (0.52, best_value), **changes)


def hostile(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A run in which every text that a stranger can write is an attack on the page."""
    text = HOSTILE + "\n" + BIDI + "\n" + CONTROLS + "\n" + GIANT
    source = "Sort this.\n" + text
    start, child = Prompt.parse("Sort this."), Prompt.parse(source)
    first = {
        **describe_candidate(Candidate(start)),
        "operator": "start",
        "validation": 0.2,
        "n": 10,
        "incumbent": True,
    }
    second = {
        **describe_candidate(
            Candidate(
                child,
                (start.id, '"><script>window.hacked=6</script>'),
                HOSTILE,
                Score(0.4, 9, {HOSTILE: 0.4}),
            )
        ),
        "id": HOSTILE,
        "validation": 0.6,
        "n": 10,
        "incumbent": True,
    }
    row = {
        "id": HOSTILE,
        "output": text,
        "reward": 0.0,
        "parts": {HOSTILE: 0.5},
        "critique": BIDI + HOSTILE,
        "error": None,
    }
    failed = {**row, "id": CONTROLS, "error": "provider: " + text}
    before, after = [row, failed], [{**row, "reward": 1.0}, failed]
    asked = [{"id": one["id"], "input": text, "target": HOSTILE} for one in before]
    events = [
        event("validated", first, 10),
        event("candidate", second, 30),
        event("validated", second, 40),
        event("step", {HOSTILE: 1.0, "\u202e": 2}, 41),
        event("step", {HOSTILE: 2.0, "\u202e": 1}, 42),
        event("step", "not a mapping", 42),
        event(HOSTILE, {HOSTILE: text}, 42),
        event("final", {"baseline": before, "best": after, "examples": asked, "low": 0.0, "high": 1.0}, 60),
    ]
    header = header_of(HOSTILE, task=HOSTILE, config={HOSTILE: text}, models={"task": HOSTILE, HOSTILE: BIDI})
    write_journal(folder, events, header, [(HOSTILE, "answered", 1, 1, 0.1)], 3.0)
    result = result_of("Sort this.", source, (before, after), task=HOSTILE, method=HOSTILE, ended_by=HOSTILE)
    result["best"]["id"] = HOSTILE
    result["improvement"]["reason"] = "Not promoted: " + HOSTILE
    result["warnings"] = [HOSTILE, BIDI, text]
    result["control"] = {**result, "method": HOSTILE}
    return folder, result


def running(folder: Path) -> tuple[Path, None]:
    """A run in the middle of its search."""
    events, *_ = search_events(rounds=3)
    return write_journal(
        folder, events, header_of(models={"task": "scripted/rule"}), ATTEMPTS[:30], 12.0
    ), None


def stopped(folder: Path) -> tuple[Path, dict[str, Any]]:
    """A run whose endpoint died, with the result that the command line leaves behind."""
    events, best, _ = search_events(rounds=2)
    write_journal(folder, events, header_of(), ATTEMPTS[:30], 12.0)
    return folder, {
        "task": "help-desk",
        "method": "protegi",
        "seed": 0,
        "status": "stopped",
        "ended_by": "openai/small-model has not answered 40 attempts in a row.",
        "best": {"prompt": best.prompt.source, "id": best.prompt.id},
        "improvement": {
            "promoted": False,
            "reason": "The run stopped before the sealed test. Run the same command again.",
        },
    }

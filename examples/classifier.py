"""A classifier in fifteen lines: rows as dicts, a simulated model, no key, no network, a few seconds."""

import whet

WORDS = {"bad": "negative", "dull": "negative", "good": "positive", "lovely": "positive"}
rows = [{"review": f"Dish {i} was {w}.", "target": t} for i in range(50) for w, t in WORDS.items()]

result = whet.optimize(
    "<!-- whet:begin -->\nWhat is it like?\n<!-- whet:end -->\nReview: {{review}}",
    data=rows,
    reward="exact_match",
    labels=["negative", "positive"],
    lm="scripted/labels",  # for a real one: openai/NAME, hf/PATH, or a function (messages) -> text
    optimizer_lm="scripted/phrases",
    method=whet.methods.opro.Config(steps=10),
    budget=whet.Budget(calls=2000),
)
print(result.improvement.reason)
print(result.best.prompt.text)

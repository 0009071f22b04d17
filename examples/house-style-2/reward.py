"""How much of the house style a label keeps: capitals, hyphens, a hash in front, an exclamation mark behind."""

import re


def reward(example, output):
    label = output.strip()
    letters = re.sub(r"[^A-Za-z]", "", label)
    kept = {
        "capitals": letters.isupper(),
        "hyphens": "-" in label and " " not in label.removeprefix("# "),
        "hash": label.startswith("# "),
        "exclamation": label.endswith("!"),
    }
    wanted = re.sub(r"[^A-Za-z]", "", example["target"])
    whole = 1.0 if letters.upper() == wanted else 0.5
    critique = " ".join(f"Not kept: {name}." for name, good in kept.items() if not good)
    return {
        "reward": whole * sum(kept.values()) / 4,
        "exact": float(label == example["target"]),
        "critique": critique,
    }

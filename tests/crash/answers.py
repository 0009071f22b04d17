"""A deterministic world behind the local server: a task model that obeys one word, and an optimizer that finds it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter

from whet.types import Request

STALLED_AFTER = 40
WORDINGS = ("Give only the number.", "Think first.", "Write digits only.", "Be polite.", "Answer in words.")


def answer(request: Request) -> str:
    """The number alone when the prompt says `only`; a wording in the tags that were asked for otherwise."""
    text = "\n".join(m.content for m in request.messages)
    if "You answer questions" in request.messages[0].content and len(request.messages) == 2:
        number = re.search(r"\d+", request.messages[1].content)
        if number is None:
            return "There is no number."
        return number.group() if "only" in request.messages[0].content else f"It is {number.group()}."
    pick = int(hashlib.sha256(f"{text}{request.seed}{request.sample}".encode()).hexdigest(), 16)
    wording = WORDINGS[pick % len(WORDINGS)]
    if '"requirements"' in text:
        return json.dumps({"requirements": [{"critiques": [1], "violates": None, "instruction": wording}]})
    if '"duplicates"' in text:
        return json.dumps({"duplicates": [], "contradictions": [], "unclear": []})
    if '"insights"' in text:
        return (
            f"<REFLECTION>{json.dumps({'insights': [wording], 'helped': [], 'harmed': ['L1']})}</REFLECTION>"
        )
    if "<LESSON>" in text:
        return f"<LESSON>{wording}</LESSON>"
    if "<GUIDELINES>" in text:
        return f"<GUIDELINES>{json.dumps([{'guideline': wording, 'sources': ['R1', 'R2']}])}</GUIDELINES>"
    if "<ITEM>" in text:
        return f"<ITEM>What to say\nFor questions like this one.\n\n{wording}</ITEM>"
    if '"op": "add"' in text:
        return f"<OPERATIONS>{json.dumps([{'op': 'add', 'text': wording}])}</OPERATIONS>"
    if '"op": "append"' in text:
        return f"<EDITS>{json.dumps([{'op': 'append', 'text': wording}])}</EDITS>"
    return f"<PROMPT>{wording}</PROMPT><REASON>The answer holds more than a number.</REASON>"


_seen: Counter[Request] = Counter()


async def stalling(request: Request) -> str:
    """As `answer`, until so many requests came a second time, each for another model; what comes later is never answered."""
    _seen[request] += 1
    if sum(_seen.values()) - len(_seen) > STALLED_AFTER:
        await asyncio.Event().wait()
    return answer(request)

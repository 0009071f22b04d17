"""Rules about `sections`."""

from __future__ import annotations

import re

from benchmarks.simulated.rule import Page, Rule, change, drop, every, put, text


def _same_id(page: Page) -> None:
    page["sections"][1]["id"] = page["sections"][0]["id"]


RULES = (
    Rule(
        id="section_count",
        statement="Write four to six sections.",
        paraphrases=(
            "A page must have between four and six sections.",
            "Use at least four and at most six sections.",
            "The number of sections is four to six.",
        ),
        critiques=(
            "The page does not have four to six sections.",
            "I counted the sections and there were not between four and six.",
            "The page has the wrong length; there should be four to six sections.",
        ),
        check=lambda page: isinstance(page["sections"], list) and 4 <= len(page["sections"]) <= 6,
        breaks=drop("sections.2"),
        says=(
            (
                r"\d+ (?:to \d+ |and (?:at most )?\d+ |or \d+ )?(?:\w+ )?sections\b(?! "
                r"(?:\w+ )?(?:share|the same)) & =4 & =6"
            ),
            "number of sections|counted the sections & =4 & =6",
        ),
    ),
    Rule(
        id="section_id",
        statement="Write section ids in kebab-case.",
        paraphrases=(
            "Every section `id` must be in kebab-case: small letters joined by hyphens.",
            "Use kebab case for the `id` of a section.",
            "Section ids consist of lower-case words joined by hyphens.",
        ),
        critiques=(
            "The `id` of a section is not in kebab-case.",
            "A section id was not made of small words joined by hyphens.",
            "An anchor does not work; section ids should be in kebab-case.",
        ),
        check=lambda page: every(
            page["sections"], lambda s: bool(re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", text(s["id"])))
        ),
        breaks=put("sections.-1.id", "Last_Part"),
        says=("section & ids? & kebab.?case|hyphen & ~snake|camel|underscore",),
    ),
    Rule(
        id="heading_length",
        statement="Keep section headings within 50 characters.",
        paraphrases=(
            "A `heading` must not exceed 50 characters.",
            "Limit each heading to at most fifty characters.",
            "Headings have no more than 50 characters.",
        ),
        critiques=(
            "A heading is longer than 50 characters.",
            "One heading runs over the limit of 50 characters.",
            "A heading is too long; headings should have at most 50 characters.",
        ),
        check=lambda page: every(page["sections"], lambda s: len(text(s["heading"])) <= 50),
        breaks=put("sections.1.heading", "All the many details that you might ever want to know"),
        says=("heading & character|letter & =50",),
    ),
    Rule(
        id="body_words",
        statement="Give the body of every section at least eight words.",
        paraphrases=(
            "A section `body` must have eight words or more.",
            "Write no fewer than 8 words in each `body`.",
            "Bodies of sections need at least eight words.",
        ),
        critiques=(
            "The body of a section has fewer than eight words.",
            "One `body` was cut short: not even eight words.",
            "A section looks empty; its body should have at least eight words.",
        ),
        check=lambda page: every(page["sections"], lambda s: len(text(s["body"]).split()) >= 8),
        breaks=put("sections.0.body", "Welcome to us."),
        says=(r"*body|bodies & word & =8",),
    ),
    Rule(
        id="section_level",
        statement="Set the `level` of every section to 2.",
        paraphrases=(
            "Each section must have `level` 2.",
            "Use level 2 for all sections.",
            "Sections are second-level: `level` is 2.",
        ),
        critiques=(
            "A section does not have `level` 2.",
            "The `level` of one section was not 2.",
            "The outline jumps; every section should have `level` 2.",
        ),
        check=lambda page: every(page["sections"], lambda s: s["level"] == 2),
        breaks=put("sections.0.level", 3),
        says=("section & level & =2",),
    ),
    Rule(
        id="summary_length",
        statement="Give every section a summary of at most 80 characters.",
        paraphrases=(
            "A section `summary` must not exceed 80 characters.",
            "Limit summaries to eighty characters.",
            "Each `summary` has no more than 80 characters.",
        ),
        critiques=(
            "The summary of a section is longer than 80 characters.",
            "One `summary` runs over the 80 characters of the card.",
            "A summary is too long; it should have at most 80 characters.",
        ),
        check=lambda page: every(page["sections"], lambda s: 0 < len(text(s["summary"])) <= 80),
        breaks=put(
            "sections.0.summary",
            "In this part we tell you in so many words what the part below is going to say about it",
        ),
        says=(r"*summar(?:y|ies) & character|letter & =80",),
    ),
    Rule(
        id="section_unique",
        statement="Make the ids of sections unique.",
        paraphrases=(
            "No two sections may share an `id`.",
            "Every section must have its own `id`, different from all others.",
            "Use each section id only once.",
        ),
        critiques=(
            "Two sections have the same `id`.",
            "The ids of the sections are not unique.",
            "An anchor leads to the wrong place; section ids should be unique.",
        ),
        check=lambda page: len({text(s["id"]) for s in page["sections"]}) == len(page["sections"]),
        breaks=_same_id,
        says=(
            "section & ids? & unique|distinct|own|different|only once",
            "! section & ids? & share|same|repeat|twice",
        ),
    ),
    Rule(
        id="first_section",
        statement="Make the first section one of kind `intro`.",
        paraphrases=(
            "The first section must have `kind` intro.",
            "Start the sections with an intro.",
            "Let an `intro` be the first of the sections.",
        ),
        critiques=(
            "The first section is not of kind `intro`.",
            "The sections start without an intro.",
            "Readers fall right into details; the first section should be an `intro`.",
        ),
        check=lambda page: page["sections"][0]["kind"] == "intro",
        breaks=put("sections.0.kind", "text"),
        says=("section & first|start|begin|open & =intro",),
    ),
    Rule(
        id="last_section",
        statement="Make the last section one of kind `call_to_action`.",
        paraphrases=(
            "The last section must have `kind` call_to_action.",
            "End the sections with a `call_to_action`.",
            "Let a call to action be the final section.",
        ),
        critiques=(
            "The last section is not of kind `call_to_action`.",
            "The sections end without a call to action.",
            "Readers do not know what to do next; the last section should be a `call_to_action`.",
        ),
        check=lambda page: page["sections"][-1]["kind"] == "call_to_action",
        breaks=put("sections.-1.kind", "text"),
        says=("section & last|end|final|clos & =call.to.action",),
    ),
    Rule(
        id="heading_colon",
        statement="Never end a heading with a colon.",
        paraphrases=(
            "Headings must not close with a colon.",
            "No colon at the end of a `heading`.",
            "Avoid a colon after a heading.",
        ),
        critiques=(
            "A heading ends with a colon.",
            "There was a colon after one heading.",
            "One heading looks unfinished; a heading should not end with a colon.",
        ),
        check=lambda page: every(page["sections"], lambda s: not text(s["heading"]).endswith(":")),
        breaks=change("sections.0.heading", lambda h: f"{h}:"),
        says=("! heading & colon",),
    ),
)

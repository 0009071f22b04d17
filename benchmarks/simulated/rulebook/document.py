"""Rules about the document as a whole."""

from __future__ import annotations

import re

from benchmarks.simulated.rule import Page, Rule, depth, drop, keys, put, text, texts


def _title_fifth(page: Page) -> None:
    title, *others = list(page)
    order = [*others[:4], title, *others[4:]]
    values = {key: page[key] for key in order}
    page.clear()
    page.update(values)


def _footer_not_last(page: Page) -> None:
    *others, before, footer = list(page)
    values = {key: page[key] for key in (*others, footer, before)}
    page.clear()
    page.update(values)


def _has_null(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has_null(inner) for inner in value.values())
    return any(_has_null(inner) for inner in value) if isinstance(value, list) else value is None


RULES = (
    Rule(
        id="schema_version",
        statement='Give the page a top-level `schema_version` with the value "2.1".',
        paraphrases=(
            "Every page carries `schema_version`: 2.1 at the top level.",
            "State the schema version (`schema_version`) as 2.1 on each page.",
            "Set `schema_version` to 2.1.",
        ),
        critiques=(
            "There is no `schema_version` 2.1 on the page.",
            "I could not tell which schema the page follows, because `schema_version` 2.1 was missing.",
            "The page came without a schema version; it should say `schema_version` 2.1.",
        ),
        check=lambda page: page["schema_version"] == "2.1",
        breaks=drop("schema_version"),
        says=(r"*schema.?version & =2\.1 & ~\d",),
    ),
    Rule(
        id="first_key",
        statement="Start the page object with `title`: it is the first key.",
        paraphrases=(
            "The first key of the document must be `title`.",
            "Let `title` lead: no other key of the document comes before it.",
            "Always put `title` first among the top-level keys.",
        ),
        critiques=(
            "Another key stands before `title`, which was not the first key of the document.",
            "The document opens with the wrong key instead of `title`.",
            "The first key was something else; `title` should be the first key.",
        ),
        check=lambda page: next(iter(page), None) == "title",
        breaks=_title_fifth,
        says=(r"first|start|open|lead|before & key|field|propert|page object & =title & ~footer",),
    ),
    Rule(
        id="last_key",
        statement="End the page object with `footer`: it is the last key.",
        paraphrases=(
            "The last key of the document must be `footer`.",
            "Close the top-level object with the key `footer`.",
            "Always put `footer` at the end of the top-level keys.",
        ),
        critiques=(
            "A key follows after `footer`, which was not the last one.",
            "The document ends with the wrong key instead of `footer`.",
            "The final key was something else; `footer` should be the last key.",
        ),
        check=lambda page: list(page)[-1] == "footer",
        breaks=_footer_not_last,
        says=(r"last|end|final|clos|follow & key|field|propert|page object & =footer & ~title",),
    ),
    Rule(
        id="lang",
        statement="Set the top-level `lang` to `en-GB`.",
        paraphrases=(
            "Declare the language of the page as British English: `lang` is `en-GB`.",
            "Each page needs a `lang` key with the value `en-GB`.",
            "Use `en-GB` as the page's `lang`.",
        ),
        critiques=(
            "The page does not declare its language; `lang` `en-GB` is missing.",
            "There was no `lang` with `en-GB` anywhere.",
            "A screen reader cannot pick a voice: `lang` should be `en-GB`.",
        ),
        check=lambda page: page["lang"] == "en-GB",
        breaks=drop("lang"),
        says=(r"*lang(?:uage)?\b & =en.?gb|british & ~\ben.?us|american",),
    ),
    Rule(
        id="snake_case",
        statement="Write every key in snake_case.",
        paraphrases=(
            "All keys must be in snake case: small letters joined by underscores.",
            "Keep to snake_case for key names throughout.",
            "Never use camelCase for a key.",
        ),
        critiques=(
            "One key is written in camelCase.",
            "The key names mix styles: not all are snake_case.",
            "I found a camelCase key; key names should be in snake_case.",
        ),
        check=lambda page: all(re.fullmatch(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*", key) for key in keys(page)),
        breaks=put("hero.extraNotes", "seasonal"),
        says=("snake.?case", "! camel.?case"),
    ),
    Rule(
        id="no_null",
        statement="Never use `null` as a value.",
        paraphrases=(
            "Leave a key out when it has no value; `null` must not appear.",
            "Do not write null anywhere.",
            "Null values are forbidden.",
        ),
        critiques=(
            "A value on the page is `null`.",
            "One of the keys carries null, which tells the reader nothing.",
            "There is a null on the page; null must not appear.",
        ),
        check=lambda page: isinstance(page, dict) and not _has_null(page),
        breaks=put("hero.subtitle", None),
        says=("! null",),
    ),
    Rule(
        id="no_empty_text",
        statement="Never leave a text empty: no value may be an empty string.",
        paraphrases=(
            "Empty strings are not allowed anywhere.",
            "Do not put a blank string into any key.",
            "Avoid empty strings.",
        ),
        critiques=(
            "One value on the page is an empty string.",
            "A key was there but its text was empty, a blank string.",
            "I found an empty string; empty strings should not occur.",
        ),
        check=lambda page: isinstance(page, dict) and all(string.strip() for string in texts(page)),
        breaks=put("hero.badge", ""),
        says=("! empty|blank & string|text|value",),
    ),
    Rule(
        id="depth",
        statement="Keep the document at most five levels deep.",
        paraphrases=(
            "Nest objects and lists at most five levels.",
            "The nesting of the document must not exceed five levels.",
            "No more than five levels of nesting are allowed.",
        ),
        critiques=(
            "The nesting is deeper than five levels.",
            "Some objects lie so deep inside one another that there are more than five levels.",
            "The nesting goes too deep; it should stay within five levels.",
        ),
        check=lambda page: isinstance(page, dict) and depth(page) <= 5,
        breaks=put("accessibility.notes", {"a": {"b": {"c": {"d": "see above"}}}}),
        says=("nest|deep|depth & level & =5",),
    ),
    Rule(
        id="page_type",
        statement="Set `page_type` to one of `landing`, `article` or `listing`.",
        paraphrases=(
            "The only values for `page_type` are landing, article and listing.",
            "Choose `page_type` from: landing, article, listing.",
            "`page_type` must be landing, article or listing.",
        ),
        critiques=(
            "The `page_type` is none of landing, article, listing.",
            (
                "An unknown `page_type` was used instead of landing, article "
                "or listing, and the page has no template."
            ),
            "This `page_type` does not exist; it should be landing, article or listing.",
        ),
        check=lambda page: page["page_type"] in ("landing", "article", "listing"),
        breaks=put("page_type", "generic"),
        says=("*page.?type & =landing & =article & =listing",),
    ),
    Rule(
        id="page_id",
        statement="Let `page_id` be `pg_` followed by eight hexadecimal digits.",
        paraphrases=(
            "Write `page_id` as pg_ plus eight hex digits.",
            "Every `page_id` starts with `pg_` and goes on with eight hexadecimal digits.",
            "The `page_id` must have the form pg_ and then 8 hex digits.",
        ),
        critiques=(
            "The `page_id` is not `pg_` with eight hexadecimal digits.",
            "I see a `page_id` of the wrong form, without `pg_` and eight hex digits.",
            "The `page_id` cannot be looked up; it should be `pg_` and eight hex digits.",
        ),
        check=lambda page: bool(re.fullmatch(r"pg_[0-9a-f]{8}", text(page["page_id"]))),
        breaks=put("page_id", "page-1"),
        says=("*page.?id & =pg_ & =8 & hex",),
    ),
)

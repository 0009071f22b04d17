"""Rules about `meta`."""

from __future__ import annotations

import re

from benchmarks.simulated.rule import Rule, change, drop, every, put, text, whole

RULES = (
    Rule(
        id="description_length",
        statement="Write the meta description with 120 to 155 characters.",
        paraphrases=(
            "Keep `meta.description` between 120 and 155 characters long.",
            "The description in `meta` must have at least 120 and at most 155 characters.",
            "A meta description takes 120-155 characters.",
        ),
        critiques=(
            "The meta description does not have 120 to 155 characters.",
            (
                "Search results would cut or waste the meta description, "
                "which is not 120 to 155 characters long."
            ),
            "The meta description has the wrong length; it should take 120 to 155 characters.",
        ),
        check=lambda page: 120 <= len(text(page["meta"]["description"])) <= 155,
        breaks=put("meta.description", "Welcome to our page."),
        says=("*meta.?description|description in meta & character|letter & =120 & =155",),
    ),
    Rule(
        id="keyword_count",
        statement="List exactly five keywords in `meta.keywords`.",
        paraphrases=(
            "`meta.keywords` holds five keywords.",
            "Give five keywords, not more and not fewer.",
            "The number of keywords must be 5.",
        ),
        critiques=(
            "The number of keywords is not five.",
            "The list of keywords does not have five entries.",
            "The keywords are too few or too many; there should be five keywords.",
        ),
        check=lambda page: isinstance(page["meta"]["keywords"], list) and len(page["meta"]["keywords"]) == 5,
        breaks=drop("meta.keywords.0"),
        says=("keyword & =5",),
    ),
    Rule(
        id="keyword_case",
        statement="Write keywords in lower case.",
        paraphrases=(
            "All `meta.keywords` are lowercase.",
            "Use small letters only for each keyword.",
            "Keywords must be in lower case.",
        ),
        critiques=(
            "A keyword is not in lower case.",
            "Some of the keywords were written with large letters instead of lower case.",
            "The keywords mix large and small letters; they should be lower case.",
        ),
        check=lambda page: every(page["meta"]["keywords"], lambda word: text(word) == word.lower()),
        breaks=change("meta.keywords.-1", lambda word: word.title()),
        says=("keyword & lower.?case|small letters",),
    ),
    Rule(
        id="robots",
        statement="Set `meta.robots` to `index, follow`.",
        paraphrases=(
            'Always write "index, follow" as the robots value.',
            "The `robots` entry in `meta` must be `index, follow`.",
            "Use `index, follow` for robots.",
        ),
        critiques=(
            "The `robots` value is not `index, follow`.",
            (
                "Crawlers are turned away: robots was something else instead of "
                "the usual; `index, follow` was not there."
            ),
            "The wrong robots value was given; robots should be `index, follow`.",
        ),
        check=lambda page: page["meta"]["robots"] == "index, follow",
        breaks=put("meta.robots", "noindex"),
        says=(r"*robots & =index,? follow & ~no.?index|no.?follow",),
    ),
    Rule(
        id="canonical",
        statement="Begin `meta.canonical` with `https://www.example.org/`.",
        paraphrases=(
            "The canonical address must start with https://www.example.org/.",
            "Put `https://www.example.org/` in front of every canonical path.",
            "Canonical addresses are complete: https://www.example.org/ and then the path.",
        ),
        critiques=(
            "The canonical address does not begin with `https://www.example.org/`.",
            "The canonical is only a path, without https://www.example.org/ before it.",
            "The canonical is incomplete; it should start with https://www.example.org/.",
        ),
        check=lambda page: text(page["meta"]["canonical"]).startswith("https://www.example.org/"),
        breaks=put("meta.canonical", "/home"),
        says=(r"*canonical & =https://www\.example\.org",),
    ),
    Rule(
        id="author",
        statement="Make `meta.author` an object with `name` and `role`.",
        paraphrases=(
            "The author in `meta` must have a name and a role.",
            "Give the author as an object holding `name` and `role`.",
            "State both name and role of the author.",
        ),
        critiques=(
            "The author is not an object with `name` and `role`.",
            "Of the author only a bare text was given, without name and role.",
            "One cannot tell who wrote this; the author should have `name` and `role`.",
        ),
        check=lambda page: {"name", "role"} <= page["meta"]["author"].keys(),
        breaks=put("meta.author", "Staff"),
        says=("*author & =name & =role",),
    ),
    Rule(
        id="updated",
        statement="Write `meta.updated` as an ISO date (YYYY-MM-DD).",
        paraphrases=(
            "The `updated` date must have the form YYYY-MM-DD.",
            "Use the ISO format YYYY-MM-DD for `updated`.",
            "Give `meta.updated` as year, month and day: YYYY-MM-DD.",
        ),
        critiques=(
            "The `updated` date is not of the form YYYY-MM-DD.",
            "For `updated` another notation was used instead of an ISO date.",
            "The `updated` date cannot be sorted; it should be YYYY-MM-DD.",
        ),
        check=lambda page: bool(re.fullmatch(r"\d{4}-\d{2}-\d{2}", text(page["meta"]["updated"]))),
        breaks=put("meta.updated", "14 March 2026"),
        says=(r"*updated & =yyyy-mm-dd|iso\b & ~dd|mm|us\b",),
    ),
    Rule(
        id="reading_minutes",
        statement="Give `meta.reading_minutes` as a whole number.",
        paraphrases=(
            "`reading_minutes` must be an integer.",
            "Write the reading minutes as a whole number without a unit.",
            "Use an integer for `reading_minutes`.",
        ),
        critiques=(
            "The value of `reading_minutes` is not a whole number.",
            "I found a text in `reading_minutes` instead of an integer.",
            "The `reading_minutes` cannot be added up; they should be a whole number.",
        ),
        check=lambda page: whole(page["meta"]["reading_minutes"]),
        breaks=put("meta.reading_minutes", "3 minutes"),
        says=("*reading.?minutes|reading time & =integer|whole number|whole minutes",),
    ),
    Rule(
        id="theme_color",
        statement="Give `meta.theme_color` as `#` and six hexadecimal digits.",
        paraphrases=(
            "The theme colour must be written in hex with six digits, such as #1a2b3c.",
            "Use a six-digit hexadecimal code for `theme_color`.",
            "Write `theme_color` as a hex code of six digits.",
        ),
        critiques=(
            "The `theme_color` is not a hex code of six digits.",
            "A colour name was used for `theme_color` instead of six hexadecimal digits.",
            "Browsers ignore this `theme_color`; it should be a six-digit hex code.",
        ),
        check=lambda page: bool(re.fullmatch(r"#[0-9a-fA-F]{6}", text(page["meta"]["theme_color"]))),
        breaks=put("meta.theme_color", "navy"),
        says=("*theme.?colou?r & =hex",),
    ),
    Rule(
        id="og_image",
        statement="Give `meta.og_image` the width 1200 and the height 630.",
        paraphrases=(
            "The `og_image` must measure 1200 by 630.",
            "Use 1200 x 630 for the size of `og_image`.",
            "Set `og_image` to a width of 1200 and a height of 630.",
        ),
        critiques=(
            "The `og_image` does not measure 1200 by 630.",
            "The size of `og_image` was not 1200 x 630, so that previews are cut.",
            "The `og_image` has the wrong size; it should be 1200 by 630.",
        ),
        check=lambda page: (
            (page["meta"]["og_image"]["width"], page["meta"]["og_image"]["height"]) == (1200, 630)
        ),
        breaks=put("meta.og_image.width", 800),
        says=("*og.?image & =1200 & =630",),
    ),
)

"""Rules about `faq` and `contact`."""

from __future__ import annotations

import re

from benchmarks.simulated.rule import Page, Rule, change, drop, every, put, text


def _channels_reversed(page: Page) -> None:
    page["contact"]["channels"].reverse()


RULES = (
    Rule(
        id="question_mark",
        statement="End every question of the FAQ with a question mark.",
        paraphrases=(
            "Each `question` must close with a question mark.",
            "FAQ questions always end in a question mark.",
            "Put a question mark after all questions in `faq`.",
        ),
        critiques=(
            "A question of the FAQ does not end with a question mark.",
            "One `question` came without its question mark.",
            "It reads like a statement; every question should end with a question mark.",
        ),
        check=lambda page: every(page["faq"], lambda q: text(q["question"]).endswith("?")),
        breaks=change("faq.0.question", lambda q: q.rstrip("?")),
        says=("question mark & end|clos|finish|after|without|question (?!mark)|questions",),
    ),
    Rule(
        id="faq_count",
        statement="Put exactly two entries into the FAQ.",
        paraphrases=(
            "The `faq` must hold two entries.",
            "Answer precisely two questions in `faq`.",
            "The number of FAQ entries is two.",
        ),
        critiques=(
            "The FAQ does not hold two entries.",
            "I counted the questions in the FAQ and they were not two.",
            "The FAQ has the wrong size; there should be exactly two entries in `faq`.",
        ),
        check=lambda page: isinstance(page["faq"], list) and len(page["faq"]) == 2,
        breaks=drop("faq.1"),
        says=("faq & \\d (?:faq )?(?:entries|questions|items)|number of|counted & =2",),
    ),
    Rule(
        id="answer_words",
        statement="Keep every FAQ answer within 30 words.",
        paraphrases=(
            "An `answer` must not exceed thirty words.",
            "Limit answers to at most 30 words.",
            "Answers in `faq` have no more than 30 words.",
        ),
        critiques=(
            "An answer in the FAQ is longer than 30 words.",
            "One `answer` runs over 30 words.",
            "An answer rambles; answers should have at most 30 words.",
        ),
        check=lambda page: every(page["faq"], lambda q: 0 < len(text(q["answer"]).split()) <= 30),
        breaks=put("faq.0.answer", "It goes " + "on and " * 15 + "on."),
        says=("answer & word & =30",),
    ),
    Rule(
        id="email",
        statement="Use an e-mail address at `example.org`.",
        paraphrases=(
            "The contact email must end with @example.org.",
            "Give an email address on the domain example.org.",
            "Every `email` belongs to example.org.",
        ),
        critiques=(
            "The email address is not at example.org.",
            "The `email` was on another domain instead of ours; it does not end with example.org.",
            "Mail would get lost; the `email` should be at example.org.",
        ),
        check=lambda page: text(page["contact"]["email"]).endswith("@example.org"),
        breaks=change("contact.email", lambda mail: mail.replace("example.org", "mail.test")),
        says=(r"*e-?mail & =@?example\.org & ~@\w+\.\w+",),
    ),
    Rule(
        id="phone",
        statement="Begin the phone number with `+44`.",
        paraphrases=(
            "Phone numbers must be international, starting with +44.",
            "Write `contact.phone` with the prefix +44.",
            "Use +44 at the start of the phone number.",
        ),
        critiques=(
            "The phone number does not begin with +44.",
            "The `phone` came without the prefix +44.",
            "Callers from abroad get nowhere; the phone number should start with +44.",
        ),
        check=lambda page: text(page["contact"]["phone"]).startswith("+44"),
        breaks=change("contact.phone", lambda phone: phone.replace("+44 ", "0")),
        says=(r"*phone & =\+44",),
    ),
    Rule(
        id="hours",
        statement="Write opening hours with a 24-hour clock, as in 09:00-17:30.",
        paraphrases=(
            "`contact.hours` must use the 24-hour clock (HH:MM-HH:MM).",
            "Give opening hours in the form HH:MM-HH:MM.",
            "Use the 24-hour clock for `hours`.",
        ),
        critiques=(
            "The opening hours do not use the 24-hour clock.",
            "The `hours` were given as am and pm instead of a 24-hour clock; there is no HH:MM-HH:MM.",
            "The opening hours are ambiguous; they should use the 24-hour clock.",
        ),
        check=lambda page: bool(re.fullmatch(r"\d\d:\d\d-\d\d:\d\d", text(page["contact"]["hours"]))),
        breaks=put("contact.hours", "9am to 5.30pm"),
        says=(r"*opening hours|contact\.hours|hours\b & =24.?h|hh:mm & ~12.?hour|\bam\b|\bpm\b",),
    ),
    Rule(
        id="postcode",
        statement="Give the address a `postcode`.",
        paraphrases=(
            "Every `contact.address` must contain a `postcode`.",
            "Add the postcode to the address.",
            "The address is not complete without its `postcode`.",
        ),
        critiques=(
            "The address has no `postcode`.",
            "The postcode of the address was missing.",
            "A parcel would come back; the address should have a `postcode`.",
        ),
        check=lambda page: bool(text(page["contact"]["address"]["postcode"])),
        breaks=drop("contact.address.postcode"),
        says=("postcode|postal code|zip code",),
    ),
    Rule(
        id="reply",
        statement="Set `contact.reply_within_days` to 2.",
        paraphrases=(
            "Promise an answer in two days: `reply_within_days` is 2.",
            "`reply_within_days` must be 2.",
            "Use 2 for `reply_within_days`.",
        ),
        critiques=(
            "The value of `reply_within_days` is not 2.",
            "The contact has no `reply_within_days` of 2.",
            "People do not know how long to wait; `reply_within_days` should be 2.",
        ),
        check=lambda page: page["contact"]["reply_within_days"] == 2,
        breaks=put("contact.reply_within_days", 5),
        says=("*reply.?within & =2",),
    ),
    Rule(
        id="channels",
        statement="Sort the contact `channels` alphabetically.",
        paraphrases=(
            "`channels` must stand in alphabetical order.",
            "List the channels in alphabetical order.",
            "Order `contact.channels` from A to Z.",
        ),
        critiques=(
            "The `channels` are not in alphabetical order.",
            "The order of the channels was not alphabetical.",
            "The channels look random; they should be sorted alphabetically.",
        ),
        check=lambda page: (
            len(page["contact"]["channels"]) > 1
            and page["contact"]["channels"] == sorted(page["contact"]["channels"])
        ),
        breaks=_channels_reversed,
        says=("*channel & =alphabetical|a to z|a-z",),
    ),
    Rule(
        id="faq_topic",
        statement="Give every FAQ entry a `topic`.",
        paraphrases=(
            "Each entry of `faq` must name its `topic`.",
            "Add a `topic` to all questions of the FAQ.",
            "State the topic of each FAQ entry under `topic`.",
        ),
        critiques=(
            "An entry of the FAQ has no `topic`.",
            "The `topic` of one question in the FAQ was missing.",
            "The questions cannot be filtered; every FAQ entry should have a `topic`.",
        ),
        check=lambda page: every(page["faq"], lambda q: bool(text(q["topic"]))),
        breaks=drop("faq.0.topic"),
        says=("faq|question & topic",),
    ),
)

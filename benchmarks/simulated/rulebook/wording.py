"""Rules about wording everywhere, about accessibility and about `footer`."""

from __future__ import annotations

import re

from benchmarks.simulated.rule import Edit, Page, Rule, change, drop, put, texts


def _say(words: str) -> Edit:
    return change("sections.1.body", lambda body: f"{body} {words}")


def _nowhere(pattern: str, page: Page) -> bool:
    return isinstance(page, dict) and not any(re.search(pattern, string) for string in texts(page))


RULES = (
    Rule(
        id="no_exclamation",
        statement="Never use an exclamation mark.",
        paraphrases=(
            "Exclamation marks are forbidden in all texts.",
            "Do not write exclamation marks anywhere.",
            "Keep the whole page free of exclamation marks.",
        ),
        critiques=(
            "There is an exclamation mark in the text.",
            "A sentence shouts at the reader with an exclamation mark.",
            "The tone is too loud; no exclamation mark should appear.",
        ),
        check=lambda page: _nowhere("!", page),
        breaks=_say("Come and see us soon!"),
        says=("! exclamation",),
    ),
    Rule(
        id="copyright",
        statement="Set `footer.copyright` to `© 2026 Brightwell`.",
        paraphrases=(
            "The copyright line must read © 2026 Brightwell.",
            'Write "© 2026 Brightwell" as the copyright in the footer.',
            "Use © 2026 Brightwell for `copyright`.",
        ),
        critiques=(
            "The copyright line does not read © 2026 Brightwell.",
            "The `copyright` in the footer was not © 2026 Brightwell.",
            "The owner is unclear; the copyright should be © 2026 Brightwell.",
        ),
        check=lambda page: page["footer"]["copyright"] == "© 2026 Brightwell",
        breaks=put("footer.copyright", "All rights reserved."),
        says=("*copyright & =2026 & =brightwell",),
    ),
    Rule(
        id="no_html",
        statement="Write plain text only, without HTML tags.",
        paraphrases=(
            "HTML tags are forbidden in every text.",
            "Never put HTML into a value.",
            "Texts must not contain HTML markup.",
        ),
        critiques=(
            "A text contains HTML tags.",
            "There was HTML markup inside a value.",
            "The tags show up on the screen; texts should contain no HTML.",
        ),
        check=lambda page: _nowhere(r"</?[a-zA-Z][^>]*>", page),
        breaks=_say("We <em>really</em> mean it."),
        says=("! html|markup", "plain text only|only plain text"),
    ),
    Rule(
        id="no_capitals",
        statement="Never write a word of five letters or more in all capitals.",
        paraphrases=(
            "Words in all caps are not allowed.",
            "Do not put words in all capitals.",
            "Avoid all-caps words.",
        ),
        critiques=(
            "A long word is written in all capitals.",
            "I found a word in all caps.",
            "It looks like shouting; no word should stand in all capitals.",
        ),
        check=lambda page: _nowhere(r"\b[A-Z]{5,}\b", page),
        breaks=_say("It is a GREAT day out."),
        says=(r"! all.?caps|all capital|only capitals|entirely (?:in )?capital|upper.?case words",),
    ),
    Rule(
        id="legal_order",
        statement="List the legal links in the order Privacy, Terms, Cookies.",
        paraphrases=(
            "`legal_links` must be Privacy, Terms, Cookies, in this order.",
            "The footer's legal links read Privacy, then Terms, then Cookies.",
            "Put Privacy, Terms and Cookies into `legal_links`, in that order.",
        ),
        critiques=(
            "The `legal_links` are not Privacy, Terms, Cookies in this order.",
            "In the footer the legal entries did not follow the order Privacy, Terms, Cookies.",
            "The lawyers want it uniform: `legal_links` should be Privacy, Terms, Cookies.",
        ),
        check=lambda page: page["footer"]["legal_links"] == ["Privacy", "Terms", "Cookies"],
        breaks=put("footer.legal_links", ["Terms", "Cookies", "Privacy"]),
        says=("*legal & =privacy.*terms.*cookies & ~terms.*privacy|cookies.*privacy|cookies.*terms",),
    ),
    Rule(
        id="social",
        statement="Name exactly two networks in `footer.social`.",
        paraphrases=(
            "`social` must list two networks.",
            "Give two social networks in the footer, not more and not fewer.",
            "The number of entries in `footer.social` is two.",
        ),
        critiques=(
            "The footer does not name two social networks.",
            "The number of entries in `social` was not two.",
            "The row in the footer has the wrong length; `social` should name exactly two networks.",
        ),
        check=lambda page: len(page["footer"]["social"]) == 2,
        breaks=drop("footer.social.0"),
        says=("*social & =2",),
    ),
    Rule(
        id="accessibility",
        statement="Name `WCAG 2.2 AA` as the accessibility `standard`.",
        paraphrases=(
            "`accessibility.standard` must be WCAG 2.2 AA.",
            "State the accessibility standard: WCAG 2.2 AA.",
            "Use WCAG 2.2 AA as the `standard` under `accessibility`.",
        ),
        critiques=(
            "The accessibility `standard` is not WCAG 2.2 AA.",
            "There was no `standard` WCAG 2.2 AA under `accessibility`.",
            "Auditors find nothing to audit against; the `standard` should be WCAG 2.2 AA.",
        ),
        check=lambda page: page["accessibility"]["standard"] == "WCAG 2.2 AA",
        breaks=put("accessibility.standard", "good"),
        says=(r"*(?:accessibility.)?standard & =wcag 2\.2 aa & ~wcag|\d",),
    ),
    Rule(
        id="skip_link",
        statement="Set `accessibility.skip_link` to `#main`.",
        paraphrases=(
            "The skip link must point to #main.",
            "Let `skip_link` be #main.",
            "Use `#main` for the `skip_link`.",
        ),
        critiques=(
            "The `skip_link` is not #main.",
            "The skip link points somewhere else; it does not go to `#main`.",
            "Keyboard users are lost; the `skip_link` should be `#main`.",
        ),
        check=lambda page: page["accessibility"]["skip_link"] == "#main",
        breaks=put("accessibility.skip_link", "/help"),
        says=("*skip.?link & =#main & ~#",),
    ),
    Rule(
        id="no_ampersand",
        statement='Never use the sign "&"; write "and".',
        paraphrases=(
            "Ampersands are forbidden in all texts.",
            "Do not write an ampersand anywhere.",
            'Spell out "and" and avoid the ampersand.',
        ),
        critiques=(
            "There is an ampersand in the text.",
            'A text contains the sign "&".',
            "The typography is careless; no ampersand should appear.",
        ),
        check=lambda page: _nowhere("&", page),
        breaks=_say("There is tea & coffee."),
        says=(r"! ampersand|&",),
    ),
    Rule(
        id="back_to_top",
        statement="Set `footer.back_to_top` to true.",
        paraphrases=(
            "The footer must offer `back_to_top`: true.",
            "Add `back_to_top` with the value true to the footer.",
            "Always switch `back_to_top` on (true).",
        ),
        critiques=(
            "The footer does not offer `back_to_top`: true.",
            "The entry `back_to_top`, set to true, was missing from the footer.",
            "Long pages are hard to leave; `back_to_top` should be true.",
        ),
        check=lambda page: page["footer"]["back_to_top"] is True,
        breaks=drop("footer.back_to_top"),
        says=("*back.?to.?top & =true & ~false",),
    ),
)

"""Rules about `links`."""

from __future__ import annotations

from benchmarks.simulated.rule import Page, Rule, change, drop, every, put, text


def _reverse(page: Page) -> None:
    page["links"].reverse()


def _one_more(page: Page) -> None:
    page["links"].insert(1, dict(page["links"][1]))


RULES = (
    Rule(
        id="link_https",
        statement="Use https for every link.",
        paraphrases=(
            "All addresses in `links` must begin with https.",
            "Links always start with https://.",
            "Every related link has to be served over https.",
        ),
        critiques=(
            "A link does not use https.",
            "One of the links was still without https.",
            "A link is open to eavesdroppers; every link should begin with https.",
        ),
        check=lambda page: every(page["links"], lambda link: text(link["url"]).startswith("https://")),
        breaks=change("links.-1.url", lambda url: url.replace("https://", "http://")),
        says=(r"link & =https & ~http\b",),
    ),
    Rule(
        id="link_rel",
        statement="Set `rel` of every link to `noopener noreferrer`.",
        paraphrases=(
            "Each link must carry `rel` with noopener noreferrer.",
            "Write `noopener noreferrer` into the `rel` of all links.",
            "Use rel = noopener noreferrer on links.",
        ),
        critiques=(
            "The `rel` of a link is not `noopener noreferrer`.",
            "One link has no rel with noopener noreferrer.",
            "The target page learns too much; `rel` should be `noopener noreferrer` on every link.",
        ),
        check=lambda page: every(page["links"], lambda link: link["rel"] == "noopener noreferrer"),
        breaks=put("links.0.rel", "alternate"),
        says=(r"*rel\b & =noopener & =noreferrer",),
    ),
    Rule(
        id="link_label",
        statement='Never label a link "Click here".',
        paraphrases=(
            'Avoid "click here" as the text of a link.',
            '"Click here" is forbidden as a label.',
            'Link labels must not read "Click here".',
        ),
        critiques=(
            'A link is labelled "Click here".',
            'I saw "click here" as the text of a link.',
            'The label says nothing about the target; a link should not be called "Click here".',
        ),
        check=lambda page: every(page["links"], lambda link: "click here" not in text(link["label"]).lower()),
        breaks=put("links.0.label", "Click here"),
        says=("! click here",),
    ),
    Rule(
        id="link_target",
        statement="Set `target` of every link to `_self`.",
        paraphrases=(
            "Links must open in the same tab: `target` is `_self`.",
            "Use `_self` as the `target` of all links.",
            "Each link has `target` _self.",
        ),
        critiques=(
            "The `target` of a link is not `_self`.",
            "One link has another target instead of the same tab; its `target` was not _self.",
            "A link opens a window of its own; its `target` should be `_self`.",
        ),
        check=lambda page: every(page["links"], lambda link: link["target"] == "_self"),
        breaks=put("links.0.target", "_blank"),
        says=("link & =_self|same tab|same window & ~_blank|new (?:tab|window)", "target & =_self & ~_blank"),
    ),
    Rule(
        id="link_order",
        statement="Sort the links alphabetically by label.",
        paraphrases=(
            "Links must stand in alphabetical order.",
            "Put `links` in alphabetical order of their labels.",
            "Order the related links from A to Z, alphabetically.",
        ),
        critiques=(
            "The links are not in alphabetical order.",
            "The order of the links was not alphabetical.",
            "One has to search; the links should be sorted alphabetically.",
        ),
        check=lambda page: (
            len(page["links"]) > 0
            and [text(link["label"]) for link in page["links"]]
            == sorted(link["label"] for link in page["links"])
        ),
        breaks=_reverse,
        says=("links & alphabetical",),
    ),
    Rule(
        id="link_count",
        statement="Offer exactly two related links.",
        paraphrases=(
            "The number of entries in `links` must be two.",
            "Give two related links, not more and not fewer.",
            "There are always two links in `links`.",
        ),
        critiques=(
            "The number of related links is not two.",
            "I counted the links and there were not two.",
            "The list of links has the wrong size; there should be exactly two links.",
        ),
        check=lambda page: isinstance(page["links"], list) and len(page["links"]) == 2,
        breaks=_one_more,
        says=(
            (
                r"\d (?:related )?links|entries in links|links (?:is|are|must be) \d|number "
                r"of (?:related )?links|counted the links & =2"
            ),
        ),
    ),
    Rule(
        id="link_external",
        statement="Say of every link whether it is `external`, as true or false.",
        paraphrases=(
            "Each link must carry the boolean `external`.",
            "Set `external` to true or false on all links.",
            "Add an `external` flag (true or false) to every link.",
        ),
        critiques=(
            "A link does not say whether it is `external`, true or false.",
            "The boolean `external` was missing on a link.",
            "Readers cannot tell where they go; every link should say `external`: true or false.",
        ),
        check=lambda page: every(page["links"], lambda link: isinstance(link["external"], bool)),
        breaks=drop("links.0.external"),
        says=("*external & =true|false|boolean|flag",),
    ),
    Rule(
        id="link_query",
        statement="Keep link addresses free of query strings.",
        paraphrases=(
            "No link may carry a query string.",
            "Never add a query string or tracking parameters to a link.",
            "Query strings are forbidden in `links`.",
        ),
        critiques=(
            "A link carries a query string.",
            "Behind one link there was a query string.",
            "A link tracks its readers; links should have no query string.",
        ),
        check=lambda page: every(page["links"], lambda link: "?" not in text(link["url"])),
        breaks=change("links.0.url", lambda url: f"{url}?ref=page"),
        says=("! query|tracking",),
    ),
    Rule(
        id="link_hreflang",
        statement="Set `hreflang` of every link to `en`.",
        paraphrases=(
            "Each link must carry `hreflang` en.",
            "Use `en` for `hreflang` on all links.",
            "`hreflang` is always en.",
        ),
        critiques=(
            "A link has no `hreflang` with en.",
            "The `hreflang` of a link was not `en`.",
            "It is unclear what the target is written in; `hreflang` should be `en`.",
        ),
        check=lambda page: every(page["links"], lambda link: link["hreflang"] == "en"),
        breaks=drop("links.0.hreflang"),
        says=(r"*hreflang & =en\b & ~(?:de|fr|es)\b",),
    ),
    Rule(
        id="tooltip_length",
        statement="Give every link a tooltip of at most 90 characters.",
        paraphrases=(
            "A link `tooltip` must not exceed 90 characters.",
            "Limit tooltips to ninety characters.",
            "Each `tooltip` has no more than 90 characters.",
        ),
        critiques=(
            "The tooltip of a link is longer than 90 characters.",
            "One `tooltip` runs over 90 characters.",
            "A tooltip covers half the page; a tooltip should have at most 90 characters.",
        ),
        check=lambda page: every(page["links"], lambda link: 0 < len(text(link["tooltip"])) <= 90),
        breaks=put(
            "links.0.tooltip",
            "This takes you to another page, on which you will find a good deal more about the same topic",
        ),
        says=("*tooltip & character|letter & =90",),
    ),
)

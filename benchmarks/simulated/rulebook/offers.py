"""Rules about `offers`."""

from __future__ import annotations

import re

from benchmarks.simulated.rule import Page, Rule, change, drop, every, put, text, whole


def _reverse(page: Page) -> None:
    page["offers"].reverse()


def _none_highlighted(page: Page) -> None:
    for offer in page["offers"]:
        offer["highlighted"] = False


RULES = (
    Rule(
        id="price_decimals",
        statement="Write prices as texts with exactly two decimals.",
        paraphrases=(
            'Every `price` must have two decimals, as in "12.50".',
            "Give each price with two decimal places.",
            "Prices always show two decimals.",
        ),
        critiques=(
            "A price does not have two decimals.",
            "One `price` was given without its two decimal places.",
            "The prices do not line up; every price should have two decimals.",
        ),
        check=lambda page: every(
            page["offers"], lambda o: bool(re.fullmatch(r"\d+\.\d\d", text(o["price"])))
        ),
        breaks=change("offers.0.price", lambda price: price[:-1]),
        says=("price & decimal & =2",),
    ),
    Rule(
        id="currency",
        statement="Set the `currency` of every offer to `EUR`.",
        paraphrases=(
            "The `currency` must be EUR throughout.",
            "Use EUR as the currency of all offers.",
            "Give each price in EUR: `currency` is EUR.",
        ),
        critiques=(
            "The `currency` of an offer is not EUR.",
            "For one offer another currency was used instead of the agreed one; it is not EUR.",
            "We cannot charge this; the `currency` should be EUR.",
        ),
        check=lambda page: every(page["offers"], lambda o: o["currency"] == "EUR"),
        breaks=put("offers.0.currency", "USD"),
        says=(r"*currenc & =eur\b & ~usd|gbp|chf|dollar|pound",),
    ),
    Rule(
        id="tax",
        statement="Mark every offer with `tax_included`: true.",
        paraphrases=(
            "Set `tax_included` to true on all offers.",
            "Each offer must carry `tax_included` = true.",
            "Offers always say `tax_included`: true.",
        ),
        critiques=(
            "An offer does not say `tax_included`: true.",
            "The entry `tax_included`, set to true, was missing on an offer.",
            "The law wants the full price; `tax_included` should be true on every offer.",
        ),
        check=lambda page: every(page["offers"], lambda o: o["tax_included"] is True),
        breaks=drop("offers.0.tax_included"),
        says=(r"*tax.?included & =true & ~false",),
    ),
    Rule(
        id="offer_order",
        statement="Sort the offers by price, the cheapest first.",
        paraphrases=(
            "Offers must stand in ascending order of price.",
            "Put the cheapest offer first.",
            "Order `offers` by rising price.",
        ),
        critiques=(
            "The offers are not sorted by price with the cheapest first.",
            "A dearer offer stands before the cheapest, which is not first.",
            "Comparing is hard; the offers should be sorted by price, ascending.",
        ),
        check=lambda page: (
            len(page["offers"]) > 0
            and [float(o["price"]) for o in page["offers"]]
            == sorted(float(o["price"]) for o in page["offers"])
        ),
        breaks=_reverse,
        says=(
            "cheapest & first",
            "offer & ascending|rising|sort|order & =price|ascending|rising & ~descending|falling|dearest",
        ),
    ),
    Rule(
        id="highlighted",
        statement="Highlight exactly one offer (`highlighted`: true).",
        paraphrases=(
            "Exactly one offer must have `highlighted` set to true.",
            "Let one and only one offer be `highlighted`.",
            "Set `highlighted` on precisely one offer.",
        ),
        critiques=(
            "It is not exactly one offer that is `highlighted`.",
            "Either no offer is `highlighted`, or several offers are.",
            "No offer stands out; exactly one should be `highlighted`.",
        ),
        check=lambda page: sum(o["highlighted"] is True for o in page["offers"]) == 1,
        breaks=_none_highlighted,
        says=("*highlight & offer|exactly & =one|a single|1 & ~all|every|both|[2-9]",),
    ),
    Rule(
        id="features",
        statement="List exactly three features for every offer.",
        paraphrases=(
            "Each offer must name three features.",
            "The `features` of an offer are three in number.",
            "Give all offers three `features`, not more and not fewer.",
        ),
        critiques=(
            "An offer does not list three features.",
            "The number of `features` of an offer was not three.",
            "The offers are of uneven height; each should list exactly three features.",
        ),
        check=lambda page: every(page["offers"], lambda o: len(o["features"]) == 3),
        breaks=drop("offers.0.features.0"),
        says=("*features & =3",),
    ),
    Rule(
        id="valid_until",
        statement="Write `valid_until` as a UTC timestamp that ends with `Z`.",
        paraphrases=(
            "`valid_until` must be a full timestamp in UTC, with a Z at the end.",
            "Give `valid_until` in UTC (ending in Z).",
            "Use UTC timestamps for `valid_until`.",
        ),
        critiques=(
            "The `valid_until` of an offer is not a UTC timestamp.",
            "One `valid_until` came without the Z of a UTC timestamp.",
            "Nobody knows when it ends; `valid_until` should be a UTC timestamp.",
        ),
        check=lambda page: every(
            page["offers"],
            lambda o: bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?Z", text(o["valid_until"]))),
        ),
        breaks=put("offers.0.valid_until", "end of December"),
        says=(r"*valid.?until & =utc|z\b & ~local time|cet|est\b",),
    ),
    Rule(
        id="stock",
        statement="Give the `stock` of every offer as a whole number.",
        paraphrases=(
            "`stock` must be an integer.",
            "Use a whole number for the `stock` of each offer.",
            "State `stock` as an integer count.",
        ),
        critiques=(
            "The `stock` of an offer is not a whole number.",
            "A word was used for `stock` instead of an integer; it is no whole number.",
            "The shop cannot count it; `stock` should be a whole number.",
        ),
        check=lambda page: every(page["offers"], lambda o: whole(o["stock"]) and o["stock"] >= 0),
        breaks=put("offers.0.stock", "plenty"),
        says=("*stock & =integer|whole number",),
    ),
    Rule(
        id="sku",
        statement="Write every `sku` as three capital letters, a hyphen and four digits.",
        paraphrases=(
            "A `sku` must have the form ABC-1234: three letters, a hyphen, four digits.",
            "Use three capitals, a hyphen and four digits for each `sku`.",
            "Each SKU consists of 3 letters, a hyphen and 4 digits.",
        ),
        critiques=(
            "A `sku` is not three letters, a hyphen and four digits.",
            "One `sku` has another form; it was not three letters and four digits.",
            "The warehouse cannot read it; a `sku` should be three letters, a hyphen and four digits.",
        ),
        check=lambda page: every(
            page["offers"], lambda o: bool(re.fullmatch(r"[A-Z]{3}-\d{4}", text(o["sku"])))
        ),
        breaks=put("offers.0.sku", "item7"),
        says=("*sku & =3 & =4", "sku & abc-1234"),
    ),
    Rule(
        id="discount",
        statement="Express `discount` as a fraction between 0 and 1.",
        paraphrases=(
            "A `discount` must be a fraction from 0 to 1.",
            "Write each discount as a number between 0 and 1.",
            "Give `discount` as a fraction, not as a percentage.",
        ),
        critiques=(
            "The `discount` of an offer is not a fraction between 0 and 1.",
            "For one discount a percentage was used instead of a fraction.",
            "The checkout computes nonsense; `discount` should be a fraction between 0 and 1.",
        ),
        check=lambda page: every(page["offers"], lambda o: 0 <= o["discount"] <= 1),
        breaks=put("offers.0.discount", 10),
        says=("*discount & =fraction|between 0 and 1|0 to 1 & ~percent|0 and 100",),
    ),
)

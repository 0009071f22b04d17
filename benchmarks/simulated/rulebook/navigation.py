"""Rules about `navigation`."""

from __future__ import annotations

from benchmarks.simulated.rule import Page, Rule, drop, every, put, text


def _entries(page: Page) -> list[Page]:
    entries = page["navigation"]
    if not isinstance(entries, list) or not entries:
        raise TypeError("not a list of entries")
    return entries


def _one_more(page: Page) -> None:
    page["navigation"].insert(1, dict(page["navigation"][1]))


RULES = (
    Rule(
        id="nav_first",
        statement="Start the navigation with the entry `Home`.",
        paraphrases=(
            "The first entry of the navigation must be labelled Home.",
            "Put Home first in the menu.",
            "Let `navigation` begin with Home.",
        ),
        critiques=(
            "The navigation does not start with Home.",
            "The first entry of the menu is not Home.",
            "Visitors look for it on the left: the first entry of the navigation should be Home.",
        ),
        check=lambda page: _entries(page)[0]["label"] == "Home",
        breaks=put("navigation.0.label", "Start"),
        says=("nav|menu & first|start|begin|open & =home",),
    ),
    Rule(
        id="nav_count",
        statement="Give the navigation exactly three entries.",
        paraphrases=(
            "The number of entries in `navigation` must be three.",
            "The menu has three entries, not more and not fewer.",
            "Use exactly 3 entries in the navigation.",
        ),
        critiques=(
            "The navigation does not have three entries.",
            "I counted the entries of the menu and they were not three.",
            "The menu has the wrong size; there should be exactly three entries in the navigation.",
        ),
        check=lambda page: len(_entries(page)) == 3,
        breaks=_one_more,
        says=("nav|menu & number of|exactly|counted|\\d entries|\\d items|has|have & entries|items & =3",),
    ),
    Rule(
        id="nav_last",
        statement="Let the navigation end with the entry `Contact`.",
        paraphrases=(
            "The last entry of the navigation must be labelled Contact.",
            "Put Contact last in the menu.",
            "Close the menu with Contact as the final entry.",
        ),
        critiques=(
            "The navigation does not end with Contact.",
            "The last entry of the menu is not Contact.",
            "People expect it on the right: the last entry of the navigation should be Contact.",
        ),
        check=lambda page: _entries(page)[-1]["label"] == "Contact",
        breaks=put("navigation.-1.label", "Write"),
        says=("nav|menu & last|end|final|clos & =contact",),
    ),
    Rule(
        id="nav_aria",
        statement="Give every navigation entry an `aria_label`.",
        paraphrases=(
            "Each entry of the menu needs an `aria_label`.",
            "Add `aria_label` to all entries of `navigation`.",
            "Never forget the `aria_label` of a navigation entry.",
        ),
        critiques=(
            "A navigation entry has no `aria_label`.",
            "I missed the `aria_label` on part of the menu; it was absent.",
            "Screen readers get nothing from the menu; every entry should have an `aria_label`.",
        ),
        check=lambda page: every(_entries(page), lambda entry: bool(text(entry["aria_label"]))),
        breaks=drop("navigation.-2.aria_label"),
        says=("aria.?label",),
    ),
    Rule(
        id="nav_label",
        statement="Use a single word as the label of a navigation entry.",
        paraphrases=(
            "Menu labels must be a single word each.",
            "Every label in `navigation` is one word.",
            "Keep each navigation label to one word.",
        ),
        critiques=(
            "A label in the navigation is not a single word.",
            "One label of the menu was longer than one word.",
            "The menu wraps; each navigation label should be a single word.",
        ),
        check=lambda page: every(_entries(page), lambda entry: len(text(entry["label"]).split()) == 1),
        breaks=put("navigation.-2.label", "Our Prices"),
        says=("nav|menu & label & =single word|one word|1 word & ~[2-9] word",),
    ),
    Rule(
        id="nav_visible",
        statement="Mark every navigation entry with `visible`: true.",
        paraphrases=(
            "Each entry of the menu must carry `visible` with the value true.",
            "Set `visible` to true on all navigation entries.",
            "All entries in `navigation` need `visible` = true.",
        ),
        critiques=(
            "A navigation entry has no `visible`: true.",
            "The flag `visible`, set to true, was missing on part of the menu.",
            "Part of the menu may be hidden; `visible` should be true on every entry.",
        ),
        check=lambda page: every(_entries(page), lambda entry: entry["visible"] is True),
        breaks=drop("navigation.0.visible"),
        says=("*visible & =true & ~false",),
    ),
    Rule(
        id="nav_slash",
        statement="End every `href` in the navigation with a slash.",
        paraphrases=(
            "Navigation addresses must close with a slash.",
            "Each menu `href` ends in a slash.",
            "Put a trailing slash on all addresses of the navigation.",
        ),
        critiques=(
            "An address in the navigation does not end with a slash.",
            "One `href` of the menu came without its trailing slash.",
            "The menu causes a redirect; every navigation `href` should end with a slash.",
        ),
        check=lambda page: every(_entries(page), lambda entry: text(entry["href"]).endswith("/")),
        breaks=put("navigation.-1.href", "/contact"),
        says=("nav|menu & slash",),
    ),
    Rule(
        id="nav_current",
        statement="Mark exactly one navigation entry as `current`.",
        paraphrases=(
            "Exactly one entry of the menu has `current`: true.",
            "There must be precisely one `current` entry in `navigation`.",
            "Let one and only one navigation entry be `current`.",
        ),
        critiques=(
            "More than one entry of the navigation is `current`, or none.",
            "It is not exactly one menu entry that is marked as `current`.",
            "The menu marks the wrong number of entries; exactly one should be `current`.",
        ),
        check=lambda page: sum(entry.get("current") is True for entry in _entries(page)) == 1,
        breaks=put("navigation.-1.current", True),
        says=(
            (
                "current & nav|menu & =exactly 1|exactly one|precisely one|only "
                "one|a single|one & ~two|both|every|all|[2-9]"
            ),
        ),
    ),
    Rule(
        id="nav_icon",
        statement="Begin the `icon` of every navigation entry with `icon-`.",
        paraphrases=(
            "Icon names in the menu must start with the prefix `icon-`.",
            "Prefix each `icon` with icon-.",
            "Every `icon` has a name of the form icon-NAME.",
        ),
        critiques=(
            "The name of an `icon` does not begin with `icon-`.",
            "An `icon` in the menu was named without the prefix `icon-`.",
            "The icon set cannot find it; an `icon` should start with `icon-`.",
        ),
        check=lambda page: every(_entries(page), lambda entry: text(entry["icon"]).startswith("icon-")),
        breaks=put("navigation.0.icon", "house"),
        says=("*icon names?|icon & =icon-",),
    ),
    Rule(
        id="nav_flat",
        statement="Keep the navigation flat: no entry has `children`.",
        paraphrases=(
            "Never add `children` to a menu entry.",
            "Submenus are forbidden: navigation entries have no `children`.",
            "The menu must be flat.",
        ),
        critiques=(
            "An entry of the navigation has `children`.",
            "The menu is not flat.",
            "There is a submenu below one entry; the navigation should be flat, without `children`.",
        ),
        check=lambda page: every(_entries(page), lambda entry: "children" not in entry),
        breaks=put("navigation.-2.children", [{"label": "More"}]),
        says=("nav|menu|sub.?menu|entr & flat", "! children|sub.?menu"),
    ),
)

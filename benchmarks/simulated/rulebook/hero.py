"""Rules about `title` and `hero`."""

from __future__ import annotations

from benchmarks.simulated.rule import Rule, change, put, text


def _words(value: object) -> int:
    return len(text(value).split())


RULES = (
    Rule(
        id="title_length",
        statement="Keep the title within 60 characters.",
        paraphrases=(
            "The page title must not exceed 60 characters.",
            "Limit `title` to at most sixty characters.",
            "A title may have no more than 60 characters.",
        ),
        critiques=(
            "The title is longer than 60 characters.",
            "The title runs past the 60 characters that fit into a browser tab.",
            "The title is too long; it should have at most 60 characters.",
        ),
        check=lambda page: 0 < len(text(page["title"])) <= 60,
        breaks=change("title", lambda t: f"Everything You Ever Wanted To Know And Even More About {t}"),
        says=("title & character|letter & =60",),
    ),
    Rule(
        id="title_brand",
        statement="End the title with `| Brightwell`.",
        paraphrases=(
            "Close every title with a bar and the brand: | Brightwell.",
            "The brand `Brightwell` must stand at the end of the title, after a bar.",
            "Let the title finish on `| Brightwell`.",
        ),
        critiques=(
            "The title does not end with `| Brightwell`.",
            "The brand Brightwell is missing from the title.",
            "Nobody sees whose page it is; the title should end with `| Brightwell`.",
        ),
        check=lambda page: text(page["title"]).endswith("| Brightwell"),
        breaks=change("title", lambda t: t.replace(" | Brightwell", " Online")),
        says=("title & =brightwell",),
    ),
    Rule(
        id="title_case",
        statement="Write the title in title case: every word begins with a capital letter.",
        paraphrases=(
            "Capitalise each word of the title.",
            "Use title case for `title`.",
            "Every word in the title must start with a capital.",
        ),
        critiques=(
            "Not every word of the title begins with a capital letter.",
            "The title is not in title case.",
            "A word of the title came in small letters; each word of the title should start with a capital.",
        ),
        check=lambda page: all(
            word[0].isupper() for word in text(page["title"]).split() if word[0].isalpha()
        ),
        breaks=change("title", lambda t: t[0].lower() + t[1:]),
        says=("title & title.?case (?!for|of)|in title.?case|capital", "use title.?case & title"),
    ),
    Rule(
        id="headline_words",
        statement="Write the hero headline with four to eight words.",
        paraphrases=(
            "The headline must have between four and eight words.",
            "Use at least 4 and at most 8 words for `hero.headline`.",
            "Keep headlines at four to eight words.",
        ),
        critiques=(
            "The headline does not have four to eight words.",
            "The number of words in the headline is not between four and eight.",
            "The headline has the wrong length; it should have four to eight words.",
        ),
        check=lambda page: 4 <= _words(page["hero"]["headline"]) <= 8,
        breaks=change("hero.headline", lambda h: f"Here you can find out all about: {h}"),
        says=("*headline & word & =4 & =8",),
    ),
    Rule(
        id="headline_stop",
        statement="Do not end the headline with a full stop.",
        paraphrases=(
            "No full stop after the hero headline.",
            "The headline must not close with a period.",
            "Leave out the full stop at the end of `hero.headline`.",
        ),
        critiques=(
            "The headline ends with a full stop.",
            "There was a period after the headline.",
            "The headline reads like a sentence; it should not end with a full stop.",
        ),
        check=lambda page: not text(page["hero"]["headline"]).rstrip().endswith("."),
        breaks=change("hero.headline", lambda h: f"{h}."),
        says=("! headline & full stop|period",),
    ),
    Rule(
        id="subheadline_stop",
        statement="End the subheadline with a full stop.",
        paraphrases=(
            "The subheadline must be a sentence that closes with a full stop.",
            "Put a period at the end of `hero.subheadline`.",
            "Every subheadline ends in a full stop.",
        ),
        critiques=(
            "The subheadline does not end with a full stop.",
            "There was no period after the subheadline.",
            "The subheadline breaks off; it should end with a full stop.",
        ),
        check=lambda page: text(page["hero"]["subheadline"]).endswith("."),
        breaks=change("hero.subheadline", lambda s: s.rstrip(".")),
        says=("sub.?headline & full stop|period",),
    ),
    Rule(
        id="cta_words",
        statement="Give the button (`hero.cta.label`) at most three words.",
        paraphrases=(
            "The label of the `cta` button must not have more than three words.",
            "Keep `cta` labels to three words or fewer.",
            "Use no more than three words on the button.",
        ),
        critiques=(
            "The button has more than three words.",
            "The text on the `cta` button runs over three words.",
            "The button wraps on small screens; the `cta` label should have at most three words.",
        ),
        check=lambda page: 1 <= _words(page["hero"]["cta"]["label"]) <= 3,
        breaks=put("hero.cta.label", "Click to find out more"),
        says=("*cta|button & word & =3",),
    ),
    Rule(
        id="cta_url",
        statement="Make `hero.cta.url` a relative path that begins with a slash.",
        paraphrases=(
            "The address behind the button is relative: it starts with a slash.",
            "Start `cta.url` with `/`, without any domain.",
            "Use a relative path for the `cta` button.",
        ),
        critiques=(
            "The `cta` address is not a relative path.",
            "Behind the button a full address was used instead of a relative one.",
            "The button leaves our site; its address should be a relative path.",
        ),
        check=lambda page: text(page["hero"]["cta"]["url"]).startswith("/"),
        breaks=put("hero.cta.url", "https://example.org/start"),
        says=(r"cta|button & relative|slash|/(?:\s|,|$)",),
    ),
    Rule(
        id="hero_loading",
        statement="Set `loading` of the hero image to `eager`.",
        paraphrases=(
            "The hero image loads eagerly: `loading` is `eager`.",
            'Use `loading`: "eager" for the image in the hero.',
            "The image in `hero` must have eager loading.",
        ),
        critiques=(
            "The hero image does not load with `eager`.",
            "In the hero the loading of the image was not eager.",
            "The hero image comes up late; its `loading` should be `eager`.",
        ),
        check=lambda page: page["hero"]["image"]["loading"] == "eager",
        breaks=put("hero.image.loading", "auto"),
        says=("hero & image|load & =eager & ~lazy|auto",),
    ),
    Rule(
        id="hero_background",
        statement="Set `hero.background` to `light` or `dark`.",
        paraphrases=(
            "Only two backgrounds exist: light and dark.",
            "Choose the hero `background` from light and dark.",
            "The `background` must be either `light` or `dark`.",
        ),
        critiques=(
            "The `background` is neither light nor dark.",
            (
                "An unknown `background` was used instead of the two that exist, "
                "light and dark; it is not light or dark."
            ),
            "The theme does not know it; `background` should be light or dark.",
        ),
        check=lambda page: page["hero"]["background"] in ("light", "dark"),
        breaks=put("hero.background", "blue"),
        says=("*background & =light & =dark",),
    ),
)

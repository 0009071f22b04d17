"""Rules about `gallery`."""

from __future__ import annotations

from benchmarks.simulated.rule import Rule, change, drop, every, put, text, whole

RULES = (
    Rule(
        id="alt_words",
        statement="Give every gallery image an `alt` text of at least five words.",
        paraphrases=(
            "An `alt` text must have five words or more.",
            "Describe each image in `alt` with no fewer than five words.",
            "Write at least 5 words of alt text for all images.",
        ),
        critiques=(
            "The `alt` text of an image has fewer than five words.",
            "For one image the alt text was too short: not even five words.",
            "A blind visitor learns little here; the alt text should have at least five words.",
        ),
        check=lambda page: every(page["gallery"], lambda i: len(text(i["alt"]).split()) >= 5),
        breaks=change("gallery.0.alt", lambda a: " ".join(a.split()[:2])),
        says=(r"*alt\b & \d+ words?\b & =5",),
    ),
    Rule(
        id="alt_start",
        statement='Do not begin an alt text with "Image of" or "Picture of".',
        paraphrases=(
            'An `alt` must not start with "image of" or "picture of".',
            'Avoid opening an alt text with the words "Image of".',
            'Never write "Picture of" in front of an alt text.',
        ),
        critiques=(
            'The alt text of an image begins with "Image of".',
            'One `alt` starts with the words "Image of", which the screen reader says anyway.',
            'The alt text wastes its first words; it should not begin with "Image of".',
        ),
        check=lambda page: every(
            page["gallery"], lambda i: not text(i["alt"]).lower().startswith(("image of", "picture of"))
        ),
        breaks=change("gallery.0.alt", lambda a: f"Image of {a}"),
        says=(r"! alt\b & image of|picture of",),
    ),
    Rule(
        id="gallery_webp",
        statement="Use WebP files in the gallery: every `src` ends with `.webp`.",
        paraphrases=(
            "Each gallery `src` must end in .webp.",
            "All images of the gallery are WebP files.",
            "Store gallery images as .webp.",
        ),
        critiques=(
            "An image of the gallery is not a WebP file.",
            "One `src` in the gallery does not end with .webp.",
            "The gallery takes long to appear; each `src` should end with .webp.",
        ),
        check=lambda page: every(page["gallery"], lambda i: text(i["src"]).endswith(".webp")),
        breaks=change("gallery.0.src", lambda s: s.replace(".webp", ".png")),
        says=(r"gallery|src|image|file & =\.?webp & ~\.?(?:png|jpe?g|gif|avif)",),
    ),
    Rule(
        id="gallery_size",
        statement="Give `width` and `height` of gallery images as whole numbers.",
        paraphrases=(
            "The `width` and `height` of an image must be integers.",
            "Use integers for the width and height in the gallery.",
            "Write width and height as whole numbers, without a unit.",
        ),
        critiques=(
            "The `width` or `height` of an image is not a whole number.",
            (
                "In the gallery a text was used for width or height instead of "
                "an integer; they are no whole numbers."
            ),
            "The layout jumps; `width` and `height` should be whole numbers.",
        ),
        check=lambda page: every(page["gallery"], lambda i: whole(i["width"]) and whole(i["height"])),
        breaks=change("gallery.0.width", lambda w: f"{w}px"),
        says=("width & height & integer|whole number",),
    ),
    Rule(
        id="gallery_lazy",
        statement="Load gallery images lazily: `loading` is `lazy`.",
        paraphrases=(
            "Set `loading` to `lazy` on every image of the gallery.",
            "Gallery images must have lazy loading.",
            'Use `loading`: "lazy" in the gallery.',
        ),
        critiques=(
            "An image of the gallery does not load with `lazy`.",
            "In the gallery the loading was not lazy.",
            "The gallery holds up the page; its `loading` should be `lazy`.",
        ),
        check=lambda page: every(page["gallery"], lambda i: i["loading"] == "lazy"),
        breaks=put("gallery.0.loading", "auto"),
        says=(r"*gallery & loading|load(?:s|ed)? (?:\w+ )?laz|laz & =laz & ~eager|auto",),
    ),
    Rule(
        id="caption_stop",
        statement="End every caption with a full stop.",
        paraphrases=(
            "Captions must close with a full stop.",
            "Put a period after each `caption`.",
            "Every `caption` ends in a full stop.",
        ),
        critiques=(
            "A caption does not end with a full stop.",
            "There was no period after one `caption`.",
            "The captions are not uniform; each caption should end with a full stop.",
        ),
        check=lambda page: every(page["gallery"], lambda i: text(i["caption"]).endswith(".")),
        breaks=change("gallery.0.caption", lambda c: c.rstrip(".")),
        says=("caption & full stop|period",),
    ),
    Rule(
        id="gallery_count",
        statement="Put exactly two images into the gallery.",
        paraphrases=(
            "The gallery must hold two images.",
            "The number of gallery images is two.",
            "Show precisely two pictures in `gallery`.",
        ),
        critiques=(
            "The gallery does not hold two images.",
            "I counted the pictures in the gallery and they were not two.",
            "The gallery has the wrong size; there should be exactly two images in the gallery.",
        ),
        check=lambda page: isinstance(page["gallery"], list) and len(page["gallery"]) == 2,
        breaks=drop("gallery.1"),
        says=("gallery & images|pictures|photos & =2",),
    ),
    Rule(
        id="credit",
        statement="Begin every `credit` with `Photo: `.",
        paraphrases=(
            "Each image `credit` must start with Photo: and then the name.",
            "Write credits as Photo: NAME.",
            "Put `Photo:` in front of every credit.",
        ),
        critiques=(
            "A `credit` does not begin with Photo:.",
            "One credit came without `Photo:` in front.",
            "It is unclear what the credit is for; a `credit` should start with `Photo:`.",
        ),
        check=lambda page: every(page["gallery"], lambda i: text(i["credit"]).startswith("Photo: ")),
        breaks=put("gallery.0.credit", "Ana Reed"),
        says=("*credit & =photo:",),
    ),
    Rule(
        id="srcset",
        statement="List the widths 480, 960 and 1440 in every `srcset`.",
        paraphrases=(
            "`srcset` must hold 480, 960 and 1440.",
            "Offer each image in three widths through `srcset`: 480, 960, 1440.",
            "Use the widths 480/960/1440 for `srcset`.",
        ),
        critiques=(
            "A `srcset` does not list 480, 960 and 1440.",
            "The widths in `srcset` were not 480, 960, 1440.",
            "Small screens load too much; `srcset` should list 480, 960 and 1440.",
        ),
        check=lambda page: every(page["gallery"], lambda i: i["srcset"] == [480, 960, 1440]),
        breaks=put("gallery.0.srcset", [480]),
        says=("*srcset & =480 & =960 & =1440",),
    ),
    Rule(
        id="decorative",
        statement="Say of every image whether it is `decorative`, as true or false.",
        paraphrases=(
            "Each image must carry the boolean `decorative`.",
            "Set `decorative` to true or false on all images.",
            "Add a `decorative` flag (true or false) to every gallery image.",
        ),
        critiques=(
            "An image does not say whether it is `decorative`, true or false.",
            "The boolean `decorative` was missing on one image.",
            "Screen readers cannot skip it; every image should say `decorative`: true or false.",
        ),
        check=lambda page: every(page["gallery"], lambda i: isinstance(i["decorative"], bool)),
        breaks=drop("gallery.0.decorative"),
        says=("*decorative & =true|false|boolean|flag",),
    ),
)

"""The page that a simulated generator writes when it obeys every rule."""

from __future__ import annotations

import re

from benchmarks.simulated.rule import Page

from whet.models.scripted import chance, choose_by_luck

_IDLE = frozenset(
    re.findall(
        r"[a-z]+",
        "and are for from its page pages that the their this wants want web website which with who make "
        "write build create please need needs about into site short seasonal announcement "
        "members should your our you must has have landing "
        "article listing",
    )
)
_FILLER = re.findall(
    r"[^ ]+",
    "You will find opening times, current offers, honest answers to common questions and a quick way to "
    "reach us, whatever the season and whatever you need from us",
)


def subject(request: str) -> list[str]:
    """Up to two content words of a request, in lower case."""
    words = [w for w in re.findall(r"[a-z]{3,10}", request.lower()) if w not in _IDLE]
    return list(dict.fromkeys(words))[:2] or ["plain", "page"]


def obedient_page(request: str) -> Page:
    """A page for a request on which all rules hold."""
    words = subject(request)
    name = " ".join(words)
    slug = "-".join(words)
    return {
        "title": f"{name.title()} | Brightwell",
        "schema_version": "2.1",
        "lang": "en-GB",
        "page_id": f"pg_{int(chance(request) * 2**32):08x}",
        "page_type": choose_by_luck(("landing", "article", "listing"), request, "type"),
        "meta": _meta(name, slug, words, request),
        "hero": {
            "headline": f"Welcome to {name} today",
            "subheadline": f"All about {name}.",
            "cta": {
                "label": choose_by_luck(("Book now", "Ask us", "Get started"), request),
                "url": f"/{slug}",
            },
            "image": {"loading": "eager"},
            "background": choose_by_luck(("light", "dark"), request, "background"),
        },
        "navigation": [_entry(label) for label in ("Home", "Prices", "Contact")],
        "sections": _sections(),
        "gallery": [_image(number) for number in (1, 2)],
        "links": [_link(label) for label in ("About us", "Visitor guide")],
        "offers": _offers(request),
        "faq": _faq(),
        "contact": {
            "email": f"{words[0]}@example.org",
            "phone": f"+44 20 7946 0{int(chance(request, 'phone') * 900) + 100}",
            "hours": "09:00-17:30",
            "address": {"street": "1 Mill Lane", "postcode": "LS1 4AP"},
            "reply_within_days": 2,
            "channels": ["chat", "mail", "phone"],
        },
        "accessibility": {"standard": "WCAG 2.2 AA", "skip_link": "#main"},
        "footer": {
            "copyright": "© 2026 Brightwell",
            "legal_links": ["Privacy", "Terms", "Cookies"],
            "social": ["blog", "news"],
            "back_to_top": True,
        },
    }


def _meta(name: str, slug: str, words: list[str], request: str) -> Page:
    description = f"All about {name}."
    for filler in _FILLER:
        if len(description) >= 125:
            break
        description += f" {filler}"
    return {
        "description": description,
        "keywords": [*words, "prices", "hours", "contact", "guide"][:5],
        "robots": "index, follow",
        "canonical": f"https://www.example.org/{slug}",
        "author": {"name": "Ana Reed", "role": "editor"},
        "updated": f"2026-0{int(chance(request, 'month') * 9) + 1}-14",
        "reading_minutes": 2 + int(chance(request, "minutes") * 5),
        "theme_color": f"#{int(chance(request, 'colour') * 2**24):06x}",
        "og_image": {"width": 1200, "height": 630},
    }


def _entry(label: str) -> Page:
    path = label.lower()
    return {
        "label": label,
        "href": "/" if path == "home" else f"/{path}/",
        "aria_label": f"To {path}",
        "visible": True,
        "icon": f"icon-{path}",
        "current": path == "home",
    }


def _sections() -> list[Page]:
    bodies = (
        ("intro", "About", "Here is what you can expect from us"),
        ("details", "Details", "We plan each visit with you in mind"),
        ("proof", "Voices", "Most people who came once return in spring"),
        ("call_to_action", "Next steps", "Choose a day and send us a note"),
    )
    return [
        {
            "id": f"part-{number}",
            "kind": kind,
            "level": 2,
            "heading": heading,
            "summary": "In short",
            "body": f"{body}.",
        }
        for number, (kind, heading, body) in enumerate(bodies, 1)
    ]


def _image(number: int) -> Page:
    return {
        "src": f"view-{number}.webp",
        "alt": f"View {number} from the outside",
        "width": 640,
        "height": 480,
        "loading": "lazy",
        "caption": "In spring.",
        "credit": "Photo: Ana Reed",
        "srcset": [480, 960, 1440],
        "decorative": False,
    }


def _link(label: str) -> Page:
    return {
        "label": label,
        "url": f"https://example.org/{label.split()[0].lower()}",
        "rel": "noopener noreferrer",
        "target": "_self",
        "external": False,
        "hreflang": "en",
        "tooltip": f"More: {label}",
    }


def _offers(request: str) -> list[Page]:
    cheap = 8 + int(chance(request, "price") * 40)
    return [
        {
            "name": kind,
            "price": f"{price}.50",
            "currency": "EUR",
            "tax_included": True,
            "highlighted": kind == "Full",
            "features": ["advice", "visit", "help"],
            "valid_until": "2026-12-31T23:59:00Z",
            "stock": price,
            "sku": f"BRW-{1000 + price}",
            "discount": 0.1,
        }
        for kind, price in (("Small", cheap), ("Full", 2 * cheap))
    ]


def _faq() -> list[Page]:
    rows = (
        ("When are you open?", "Every weekday from nine.", "hours"),
        ("Do I have to book?", "A short note is enough.", "booking"),
    )
    return [{"question": question, "answer": answer, "topic": topic} for question, answer, topic in rows]

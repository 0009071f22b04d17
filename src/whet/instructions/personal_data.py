"""Forms of secrets and personal data in a text: keys, passwords, mail and IP addresses, telephone, card and account numbers.

Only forms are known, no names: a person's name is not found. A number that is a date, a decimal or a list is none of these.
"""

from __future__ import annotations

import contextlib
import html
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterator

MAIL = r"(?<![\w.+%-])[\w.+%-]+(?:[@\uff20\ufe6b]|%40)[\w-]+\.[\w.]+"
"""A mail address, also as the query of an address on the web holds it."""
_BLANK = "[^\\S\r\n]"
_DASH = "[-\u2010-\u2015\u2212\uff0d]"
_KEY = (
    r"\b(?:(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs]|hf|npm|pypi|AIza|AKIA|ASIA)[-_]?[A-Za-z0-9_-]{14,}"
    r"|github_pat_[A-Za-z0-9_]{20,})"
)
_TOKEN = r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"
    r"(?:\\[nr]|[A-Za-z0-9+/=\s:,]|-(?!-))*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
_ACCOUNT = "what looks like an account number"
_FORMS = {
    "what looks like a key": re.compile(_KEY),
    "a private key": re.compile(_PRIVATE_KEY),
    "what looks like a token": re.compile(_TOKEN),
    "a long code": re.compile(r"(?<![A-Za-z0-9])[A-Fa-f0-9]{32,}(?![A-Za-z0-9])"),
    "a mail address": re.compile(MAIL),
    _ACCOUNT: re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"),
}
_CODE = "what looks like a code"
_CODED = re.compile(
    r"[A-Za-z0-9+/_=-]{32,}|(?<=\b[Bb]earer )[A-Za-z0-9+/_=-]{16,}|(?<=\b[Bb]asic )[A-Za-z0-9+/_=-]{16,}"
)
_MIXED = re.compile(r"[a-z](?=[A-Z0-9])|[A-Z](?=[a-z0-9])|[0-9](?=[A-Za-z])")
_LEAST_MIXED = 0.25
"""Of the characters of a code, those before another kind of character: about .6 of a random one, few of a path or a name."""
_ACCOUNT_SIGNS = re.compile(rf"(?<![^\W_])[A-Za-z]{{2}}\d{{2}}(?:(?:{_BLANK}|{_DASH})?[A-Za-z0-9]){{11,30}}")
_ACCOUNT_DIGITS = 10
"""Digits that an account number has at least: words that follow two letters and two digits have fewer."""
_CARD, _TELEPHONE = "what looks like a card number", "what looks like a telephone number"
_CARD_DIGITS = re.compile(rf"\b\d(?:(?:{_BLANK}|{_DASH}|\.)?\d){{12,18}}\b")
_DOTTED_CARD = re.compile(r"\d{4}(?:\.\d{4}){3}")
_TELEPHONE_DIGITS = re.compile(
    rf"(?<![\w.])(?<!\w[-:/])[+\uff0b]?[(\uff08]?\d(?:(?:{_BLANK}|{_DASH}|[./()\uff08\uff09]){{0,2}}\d){{8,14}}(?!\w|[.:]\d|-\w)"
)
_DATE = re.compile(r"(?:\d{4}([-./])\d{1,2}\1\d{1,2}|\d{1,2}([-./])\d{1,2}\2\d{4})(?!\d)")
_DECIMAL = re.compile(r"\d+\.\d+")
_ESCAPED = re.compile(r"\\u(?!d[89a-f])([0-9a-f]{4})", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|commat|period|plus|lowbar|hyphen);")
_PASSWORD, _IP_ADDRESS = "a password", "an IP address"
_PASSWORDS = re.compile(
    r"(?<![A-Za-z0-9])(?:[A-Za-z0-9]{1,40}[-_]){0,4}(?:password|passwd|pwd|secret|token|api[-_]?key)"
    r"(?:[\"']?\s{0,2}=\s{0,2}[\"']?|[\"']\s{0,2}:\s{0,2}[\"'])((?![{(\[$*.%])[^\s\"'&,;<>]{3,200})",
    re.IGNORECASE,
)
"""Matches the value of a password in a configuration, a command or JSON: `password=...`, `"api_key": "..."`."""
_HEXADECIMAL = re.compile(
    r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:(?:\.\d{1,3}){3})?(?![\w:]|\.\d)"
)
_LIST = 5
"""From so many groups of digits on, a number that does not begin as a telephone number does is a list."""


def personal_data(text: str) -> list[str]:
    """The kinds of personal data in a text, such as "a mail address"."""
    text = _plain(text)
    held = [name for name, form in _FORMS.items() if form.search(text)]
    numbers = (
        (_ACCOUNT, find_accounts),
        (_CODE, find_codes),
        (_PASSWORD, find_passwords),
        (_IP_ADDRESS, find_ip_addresses),
        (_CARD, find_cards),
        (_TELEPHONE, find_telephones),
    )
    held += [name for name, find in numbers if next(find(text), None) is not None]
    return list(dict.fromkeys(held))


def mask_personal(text: str) -> str:
    r"""A text with what looks like a key, a password, an address, a telephone, card or account number replaced by its name. Names
    of people stay.

    Where JSON inside the text writes a character as `\u00fc`, or HTML as `&#252;`, the form is looked for in the characters
    themselves.

    >>> mask_personal("Write to eva@example.org or call +49 30 1234567.")
    'Write to [a mail address] or call [a telephone number].'
    >>> mask_personal("Write to eva&#64;example.org from 2001:db8::8a2e:370:7334, password=hunter2.")
    'Write to [a mail address] from [an IP address], password=[a password].'
    """
    plain = _plain(text)
    masked = _mask(plain)
    return _mask(text) if masked == plain else masked


def _plain(text: str) -> str:
    """A text with the characters that JSON and HTML write as escapes."""
    plain = _ESCAPED.sub(lambda match: _letter(match[0], chr(int(match[1], 16))), text)
    return (
        _ENTITY.sub(lambda match: _letter(match[0], html.unescape(match[0])), plain)
        if "&" in plain
        else plain
    )


def _letter(escaped: str, character: str) -> str:
    """The character, unless JSON must escape it."""
    return character if character.isprintable() and character not in '"\\' else escaped


def _mask(text: str) -> str:
    text = _replace(_replace(text, find_accounts, _ACCOUNT), find_cards, _CARD)
    for name, form in _FORMS.items():
        text = form.sub(_placeholder(name), text)
    text = _replace(text, find_codes, _CODE)
    text = _replace(_replace(text, find_passwords, _PASSWORD), find_ip_addresses, _IP_ADDRESS)
    return _replace(text, find_telephones, _TELEPHONE)


def _placeholder(name: str) -> str:
    return f"[{name.removeprefix('what looks like ')}]"


def _replace(text: str, find: Callable[[str], Iterator[tuple[int, int]]], name: str) -> str:
    pieces, last = [], 0
    for start, end in find(text):
        pieces += [text[last:start], _placeholder(name)]
        last = end
    return "".join([*pieces, text[last:]])


def find_codes(text: str) -> Iterator[tuple[int, int]]:
    """Find codes whose issuer has no form of its own: 32 characters or more, or 16 after a scheme of HTTP, that mix capitals,
    small letters and digits as chance does."""
    for match in _CODED.finditer(text):
        code = match[0]
        kinds = any(c.islower() for c in code), any(c.isupper() for c in code), any(c.isdigit() for c in code)
        if all(kinds) and len(_MIXED.findall(code)) >= _LEAST_MIXED * len(code):
            yield match.span()


def find_passwords(text: str) -> Iterator[tuple[int, int]]:
    """Find the values of passwords that a text gives by name and sign."""
    for match in _PASSWORDS.finditer(text):
        end = match.end(1)
        while end > match.start(1) and text[end - 1] in ".:":
            end -= 1
        if end - match.start(1) >= 3:
            yield match.start(1), end


def find_ip_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Find addresses of version 6, with four groups or a first one of three signs: `a::b` is a name in many languages."""
    for match in _HEXADECIMAL.finditer(text):
        groups = [group for group in match[0].split(":") if group]
        if len(groups) < 4 and not (groups and len(groups[0]) >= 3 and any(c.isdigit() for c in match[0])):
            continue
        with contextlib.suppress(ValueError):
            ipaddress.IPv6Address(match[0])
            yield match.span()


def find_accounts(text: str) -> Iterator[tuple[int, int]]:
    """Find account numbers (IBAN) that pass their check, in capitals or small letters, in groups or in one piece."""
    position = 0
    while match := _ACCOUNT_SIGNS.search(text, position):
        start, position = match.start(), match.start() + 1
        for end in range(match.end(), start + 14, -1):
            if not text[end : end + 1].isalnum() and _is_account(text[start:end]):
                yield start, end
                position = end
                break


def _is_account(text: str) -> bool:
    signs = [sign for sign in text if sign.isalnum()]
    if len(signs) < 15 or not text[-1].isalnum() or sum(map(str.isdigit, signs)) < _ACCOUNT_DIGITS:
        return False
    return int("".join(str(int(sign, 36)) for sign in signs[4:] + signs[:4])) % 97 == 1


def find_cards(text: str) -> Iterator[tuple[int, int]]:
    """Find card numbers: 13 to 19 digits that pass the check of Luhn, in groups of which one has at least four."""
    for match in _CARD_DIGITS.finditer(text):
        number = match[0]
        grouped = any(len(group) >= 4 for group in re.findall(r"\d+", number))
        if grouped and ("." not in number or _DOTTED_CARD.fullmatch(number)) and _passes_luhn(number):
            yield match.span()


def find_telephones(text: str) -> Iterator[tuple[int, int]]:
    """Find telephone numbers: 9 to 15 digits, also in groups, that are no date, decimal, list or number of a book."""
    position = 0
    while match := _TELEPHONE_DIGITS.search(text, position):
        number, position = match[0], match.end()
        if date := _DATE.match(number):
            position = match.start() + date.end()
            continue
        groups = re.findall(r"\d+", number)
        marked = unicodedata.normalize("NFKC", number[0]) in "+(0"
        is_list = not marked and len(groups) >= _LIST
        if not (_DECIMAL.fullmatch(number) or is_list or _is_book("".join(groups))):
            yield match.span()


def _is_book(digits: str) -> bool:
    """Whether digits are an ISBN of 13 digits (or another article number that begins as one), with its check digit."""
    if len(digits) != 13 or not digits.startswith(("978", "979")):
        return False
    return sum(int(digit) * (1, 3)[n % 2] for n, digit in enumerate(digits)) % 10 == 0


def _passes_luhn(text: str) -> bool:
    digits = [int(c) for c in reversed(text) if c.isdigit()]
    doubled = [d * 2 - 9 * (d > 4) for d in digits[1::2]]
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0

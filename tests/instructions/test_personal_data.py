"""What looks like personal data is replaced by its name, and dates, decimals, lists and codes of books are left as they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.instructions.personal_data import mask_personal, personal_data

CARD, TELEPHONE = "[a card number]", "[a telephone number]"
RANDOM = "kJ8sQ2vLx0PzT4nYwB7cR5mHd1GfA9uE_iO3-tKqZ6X"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg+/\nAAAA==\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Pay 4111 1111 1111 1111.", f"Pay {CARD}."),
        ("4111111111111111", CARD),
        ("4111\u00a01111\u00a01111\u00a01111", CARD),
        ("4111\u20091111\u20091111\u20091111", CARD),
        ("4111\u20131111\u20131111\u20131111", CARD),
        ("4111.1111.1111.1111", CARD),
        ("378282 246310 005", CARD),
        ("\u0664\u0661\u0661\u0661 1111 1111 1111", CARD),
        ("+49 30 1234567", TELEPHONE),
        ("Call (030) 123-45678 now.", f"Call {TELEPHONE} now."),
        ("06 12 34 56 78", TELEPHONE),
        ("0301234567: call", f"{TELEPHONE}: call"),
        ("+49\u00a030\u00a01234567", TELEPHONE),
        ("555-123-4567", TELEPHONE),
        ("2026-11-30 0301234567", f"2026-11-30 {TELEPHONE}"),
        (f"a {PEM} b", "a [a private key] b"),
        (PEM.rpartition("\n")[0], "[a private key]"),
        (PEM.replace("\n", "\\n") + ".", "[a private key]."),
        ("github_pat_11ABCDEFG0abcdefghijkl", "[a key]"),
        (f"whet_{RANDOM}", "[a code]"),
        (f"Authorization: Bearer {RANDOM}.", "Authorization: Bearer [a code]."),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [a code]"),
        ("aws wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws [a code]"),
        ("lsv2_pt_0123456789abcdef0123456789abcdef_0a1b2c3d4e", "lsv2_pt_[a long code]_0a1b2c3d4e"),
        ("anna\uff20example.com", "[a mail address]"),
        ('{"k": "ann@m\\u00fcller.de"}', '{"k": "[a mail address]"}'),
        ("\uff10\uff19\uff10\uff0d\uff11\uff12\uff13\uff14\uff0d\uff15\uff16\uff17\uff18", TELEPHONE),
        ("\uff0b81\uff0890\uff09\uff11\uff12\uff13\uff14\u22125678", TELEPHONE),
        ("from gb82 west 1234 5698 7654 32 with thanks", "from [an account number] with thanks"),
        ("de89-3704-0044-0532-0130-00", "[an account number]"),
        ("pay 12ab to56 now from NO93 8601 1117 947.", "pay 12ab to56 now from [an account number]."),
        (
            "https://example.com/off?mail=eva.m%2Bx%40example.org&n=1",
            "https://example.com/off?mail=[a mail address]&n=1",
        ),
        (
            '{"k": "eva\\u002Bx\\u0040example.org", "t": "\\u002b49 30 1234567"}',
            f'{{"k": "[a mail address]", "t": "{TELEPHONE}"}}',
        ),
        ('{"k": "\\uff14111 1111 1111 1111"}', f'{{"k": "{CARD}"}}'),
    ],
)
def test_what_looks_like_personal_data_is_replaced(text: str, masked: str) -> None:
    assert mask_personal(text) == masked
    assert mask_personal(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30 18:00",
        "30.11.2026 18.30",
        "2026/11/30 18:00:05",
        "3.14159265358979",
        "0.123456789012345",
        "1 2 3 4 5 6 7 8 9 10",
        "10 20 30 40 50 60",
        "978-3-16-148410-0",
        "123e4567-e89b-12d3-a456-426614174000",
        "12345678-1234-1234-1234-123456789012",
        '{"k": "caf\\u00e9"}',
        "Round to 2 decimals, e.g. 1,234.56.",
        "claude-3-5-sonnet-20241022-v2-and-GPT-4o-mini-2024-07-18",
        "https://example.com/Docs/Version2/Administration/UserManagement",
        "ab12 this that with 2026 more than 1200 1300",
        "100% @home, 50%40 and a@b",
        "a basic understanding, a Bearer InternationalOrganisation",
        "test_a_function_with_A_long_name_and_2_digits_in_it",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert mask_personal(text) == text and personal_data(text) == []


@given(st.text(alphabet="0123456789 .-/()+:@ab\u00a0\n\\u", max_size=60))
def test_a_text_is_masked_where_something_is_found_and_nowhere_else(text: str) -> None:
    assert mask_personal(mask_personal(text)) == mask_personal(text)
    if personal_data(text):
        assert mask_personal(text) != text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        *[(f"eva{at}example.org", "[a mail address]") for at in ("&#64;", "&#x40;", "&#X40;", "&commat;")],
        ("From 2001:db8::8a2e:370:7334.", "From [an IP address]."),
        ("2001:0db8:85a3:0000:0000:8a2e:0370:7334", "[an IP address]"),
        ("[2001:db8::1]:8080, fe80::1%eth0", "[[an IP address]]:8080, [an IP address]%eth0"),
        ("password=hunter2!", "password=[a password]"),
        ("DB_PASSWORD = 's3cr3t' and api-key=xyz", "DB_PASSWORD = '[a password]' and api-key=[a password]"),
        ("http://x/?pwd=pa$$word&y=1#a", "http://x/?pwd=[a password]&y=1#a"),
        ('{"client_secret": "a b c", "token":"abc"}', '{"client_secret": "a b c", "token":"[a password]"}'),
    ],
)
def test_entities_addresses_and_passwords_are_masked(text: str, masked: str) -> None:
    assert mask_personal(text) == masked and personal_data(text)


@pytest.mark.parametrize(
    "text",
    [
        *("a &lt;b&gt; &amp; &#39;c&#39;", "Foo::bar a::b ab::cd std::vector", "12:30:45", "1:2:3:4"),
        *("00:1A:2B:3C:4D:5E", "::1", "max_tokens=512", "The password: please enter it", "?token="),
        *("password={{password}}", "password=[a password]", "pwd=${PW}", "token=%s"),
    ],
)
def test_other_entities_names_and_empty_passwords_stay(text: str) -> None:
    assert mask_personal(text) == text and not personal_data(text)

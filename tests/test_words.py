"""Texts of every script: one form for equal texts, words where there are no blanks, names inside sentences."""

from __future__ import annotations

import pytest

from whet._util.words import bare, count_words, fold, mentions, split_words, without_punctuation


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cafe\u0301", "café"),  # decomposed and composed
        ("ＡＢＣ１８", "abc18"),  # full width
        (
            "\u200bre\u00adfund\u200e\ufeff",
            "refund",
        ),  # zero width, soft hyphen, direction mark, byte-order mark
        ("١٨ ۱۸ १८ ๑๘", "18 18 18 18"),
        ("STRASSE", "straße"),
        ("ｶﾞ", "ガ"),
        ("❤\ufe0f", "❤"),
        ("\u201cdon\u2019t\u201d non\u2011toxic \u22125", '"don\'t" non-toxic -5'),
        ("İYİ", "iyi"),
        ("YANLIŞ", "yanlış"),
        ("ΑΡΝΗΤΙΚΌ", "αρνητικο"),
        ("ΑΡΝΗΤΙΚΟ", "αρνητικό"),
        ("ΑΝΘΡΩΠΟΣ", "ἄνθρωπος"),
        ("ΜΑΪΟΣ", "μάϊος"),
    ],
)
def test_equal_texts_have_one_form(one: str, other: str) -> None:
    assert fold(one) == fold(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("10²", "102"), ("x₁", "x1"), ("1½", "11/2"), ("café", "cafe"), ("ЕЩЁ", "еще"), ("αϊ", "αι")],
)
def test_different_texts_stay_different(one: str, other: str) -> None:
    assert fold(one) != fold(other)


def test_punctuation_of_every_script_goes() -> None:
    assert without_punctuation("“a” ‘b’ «c» 「d」。、！？؟।…—") == "a b c d"
    assert bare(" **「退款」**。 ") == "退款"


def test_words_stand_between_blanks_or_are_characters() -> None:
    assert split_words("see 今天 ok") == ["see", "今", "天", "ok"]
    assert split_words("คืน") == ["คื", "น"]  # a mark stays with its letter
    assert count_words("これはとても長い日本語の文です") > 5 > count_words("東京タワー")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("返金です。", "返金"),
        ("答案是退款", "退款"),
        ("คำตอบคือคืนเงินค่ะ", "คืนเงิน"),
        ("התשובה היא החזר.", "החזר"),
        ("الجواب هو استرداد.", "استرداد"),
        ("उत्तर वापसी है।", "वापसी"),
        ("환불입니다.", "환불"),
        ("Это возврат!", "возврат"),
        ("Είναι επιστροφή.", "επιστροφή"),
        ("これはrefundです", "refund"),
        ("it is 1.", "1"),
    ],
)
def test_a_label_inside_a_sentence_is_found(text: str, label: str) -> None:
    assert [mention.name for mention in mentions(fold(text), [fold(label)])] == [fold(label)]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("refundable", "refund"),
        ("non-refund", "refund"),
        ("невозврат", "возврат"),
        ("वापसीका", "वापसी"),
        ("वापसा", "वापस"),  # a vowel sign belongs to its letter
        ("1.5 or 10 or -1", "1"),
    ],
)
def test_a_part_of_a_word_is_no_label(text: str, label: str) -> None:
    assert mentions(fold(text), [fold(label)]) == []


def test_the_longest_label_is_mentioned() -> None:
    assert [m.name for m in mentions("a bug report, a bug", ["bug", "bug report"])] == ["bug report", "bug"]
    assert [m.name for m in mentions("是不退款", ["退款", "不退款"])] == ["不退款"]

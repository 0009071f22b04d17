"""Text from strangers: what to show of it, and what in it speaks to the tool instead of about an answer.

The patterns catch what is crude and, but for the crudest demand of all, what is English. They are no proof against someone
who writes a harmful demand in innocent words: that is what the quorum, the diff, the approval and the gate are for.
"""

from __future__ import annotations

import re
import unicodedata

from whet.prompt.fence import LOOKS_LIKE_MARKER
from whet.prompt.slots import SLOT

LONGEST = 4000
_HARMLESS = frozenset("\u00ad\u200c\u200d\u200e\u200f\ufeff")

_RULES = r"(?:instruction|rule|prompt|guideline|direction|message|command|constraint|system prompt)s?"
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.DOTALL), reason)
    for pattern, reason in (
        (
            r"(?<!not )(?<!n't )(?<!n’t )(?<!never )(?<!you )(?<!it )(?<!answer )"
            r"\b(?:ignore|disregard|forget|override|bypass|skip|overlook|set aside|do not follow|stop following)\b.{0,60}?(?:"
            r"\b(?:previous|prior|above|earlier|all|any|your|these|those|other|existing|everything|what)\b"
            rf".{{0,40}}?(?:\b{_RULES}\b|\babove\b|\bbefore\b)"
            rf"|\b{_RULES}\b\W+(?:above|before|so far|you (?:were|have been) given))",
            "it asks to ignore instructions",
        ),
        (
            r"\b(?:remov|delet|drop|replac|expir|rewrit|discard|eras|clear)\w*\b.{0,30}?"
            rf"\b(?:all|every|each|other|existing|previous|current|your|the whole)\b.{{0,30}}?\b{_RULES}\b",
            "it asks to remove instructions",
        ),
        (
            r"\b(?:reveal|print|repeat|output|leak|disclos|show|send|expos)\w*\b.{0,40}?"
            r"\b(?:system prompt|your (?:instructions|prompt|rules)|hidden|secrets?|api[ _-]?keys?|passwords?"
            r"|credentials?|tokens?)\b",
            "it asks for secrets",
        ),
        (
            r"\b(?:you are now|pretend (?:to be|you)|act as (?:if|an?|the)\b|jailbreak|developer mode"
            r"|do anything now|new persona)",
            "it gives the model another role",
        ),
        (
            r"\b(?:whet|optimi[sz]er|prompt (?:editor|engineer)|this tool|judge|grader|reviewer)\b\W{0,3}\s*"
            r"(?:[,:]|must\b|should\b|please\b|has to\b|you\b)",
            "it speaks to the tool",
        ),
        (
            r"\b(?:approv|accept|appl|promot|merg)\w*\b.{0,40}?\b(?:automatically|immediately|at once|silently"
            r"|without (?:asking|review|approval|confirmation))\b",
            "it asks to be accepted unseen",
        ),
        (
            r"<\|[\w-]{2,30}\|>|\[/?INST\]|<</?SYS>>"
            r"|</?(?:system|assistant|user|developer|tool|instructions?|prompt|context|complaints?|points?|feedback"
            r"|critiques?|operations?)\b[^<>]{0,80}>"
            r"|(?:^|\n)\s*(?:#+\s*)?(?:system|assistant|developer)\s*(?:prompt|message)?\s*:",
            "it imitates the form of a conversation",
        ),
        (r"\"op\"\s*:|\"operations\"\s*:", "it imitates an answer of the optimizer"),
        (r"[A-Za-z0-9+/]{160,}={0,2}", "it holds a long code that nobody can read"),
    )
)
_BEGIN = (
    r"(?:^|[\n.!?:;,\"'«“„¡(-])\s*"
    r"(?:(?:por favor|s'il (?:te|vous) pla[iî]t|per favore|alsjeblieft|prosz[eę])[ ,]+)?"
)
_IGNORING = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        r"\b(?:ignorier(?:e|en sie)?|missachte(?:n sie)?|vergiss|vergessen sie|übergeh(?:e|en sie))\b.{0,60}?"
        r"\b(?:anweisung|instruktion|vorgabe|regel|befehl|prompt)\w*",
        rf"{_BEGIN}(?:ignore[zr]?|oublie[zr]?|néglige[zr]?|ne ten(?:ez|ir|s) pas compte)\b.{{0,60}}?"
        r"\b(?:instruction|consigne|règle|directive|prompt)s?\b",
        rf"{_BEGIN}(?:ignor[ae]n?|ignorar|olvid[ae]n?|olvidar|omit[ae]n?|omitir|desestim[ae]n?)\b.{{0,60}}?"
        r"\b(?:instruccion|regla|orden|indicacion|directriz|prompt)(?:e?s)?\b",
        rf"{_BEGIN}(?:ignor[ai](?:te)?|ignorare|dimentica(?:te)?|trascura(?:te)?)\b.{{0,60}}?"
        r"\b(?:istruzion|regol|direttiv|indicazion|ordin|prompt)\w*",
        rf"{_BEGIN}(?:ignor[ae]m?|ignorar|esqueça|esquece|desconsider[ae])\b.{{0,60}}?"
        r"\b(?:instruç|regra|orden|diretriz|comando|prompt)\w*",
        rf"{_BEGIN}(?:negeer|vergeet)\b.{{0,60}}?\b(?:instructie|regel|opdracht|richtlijn|prompt)\w*",
        rf"{_BEGIN}(?:zignoruj|ignoruj|zapomnij|pomiń)(?:cie)?\b.{{0,60}}?\b(?:instrukc|poleceni|zasad|reguł|prompt)\w*",
        r"\b(?:önceki|tüm|bütün|yukarıdaki)\b.{0,40}?\b(?:talimat|kural|komut|yönerge)\w*"
        r".{0,20}?\b(?:yok say|görmezden gel|unut)(?:un|ın|in)?\b",
        r"\b(?:про)?игнорируй(?:те)?\b.{0,60}?\b(?:инструкци|указани|правил|команд|промпт)\w*",
        r"\bзабудь(?:те)?\b.{0,60}?\b(?:инструкци|указани|правил|команд|промпт)\w*",
        r"(?:忽略|无视|無視|忽視|忘记|忘記|忘掉|不要理会)(?!了).{0,20}?(?:之前|以前|以上|先前|上面|所有|全部|一切|前面|此前)"
        r".{0,20}?(?:指令|指示|提示|规则|規則|命令|要求|说明)",
        r"(?:以前|これまで|今まで|上記|上の|前の|すべて|全て|全部).{0,20}?(?:指示|命令|ルール|規則|プロンプト).{0,10}?"
        r"(?:無視|忘れ)(?:し)?(?:て|ろ|なさい|せよ)",
        r"(?:이전|위의|위에|앞의|지금까지|모든).{0,20}?(?:지시|명령|규칙|지침|프롬프트).{0,10}?(?:무시|잊)(?:하|으|어)?(?:고|세요|십시오|라|여|해)",
        r"(?:تجاهل|تجاهلوا|انس|انسَ|انسى).{0,60}?(?:تعليمات|التعليمات|أوامر|الأوامر|القواعد|التوجيهات)",
        r"(?:पिछले|सभी|सारे|ऊपर).{0,30}?(?:निर्देश|नियम|आदेश)\S*.{0,30}?(?:अनदेखा|नज़रअंदाज़|भूल|उपेक्षा)",
    )
)
"""The crudest demand, in other languages than English: commands only, as "it ignores my instructions" is a complaint."""
_ADDRESS = re.compile(r"https?://[^\s<>\"']+|\bwww\.[^\s<>\"']+|[\w.+-]+@[\w-]+\.[\w.]+", re.IGNORECASE)


def visible(text: str) -> str:
    """A text as a terminal may show it: invisible, bidirectional and control characters by their code point.

    >>> visible("a\\u202eb\\x1b[2J")
    'a⟨U+202E⟩b⟨U+001B⟩[2J'
    """
    return "".join(f"⟨U+{ord(c):04X}⟩" if _is_hidden(c) and c not in "\n\t" else c for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")


def suspicions(text: str) -> list[str]:
    """Why a text from outside must not be learned unseen; empty when nothing speaks against it."""
    found = []
    hidden = sorted({c for c in text if _is_hidden(c) and c not in _HARMLESS and c not in "\n\r\t"})
    if hidden:
        found.append(f"it holds invisible characters ({', '.join(f'U+{ord(c):04X}' for c in hidden[:5])})")
    plain = unicodedata.normalize("NFKC", "".join(c for c in text if not _is_hidden(c) or c in "\n\t"))
    if LOOKS_LIKE_MARKER.search(plain) or re.search(r"whet\s*:\s*(?:begin|end)", plain, re.IGNORECASE):
        found.append("it holds a fence marker")
    if SLOT.search(plain):
        found.append("it holds a slot in double braces")
    if len(text) > LONGEST:
        found.append(f"it is longer than {LONGEST} characters")
    read = plain[: 2 * LONGEST]
    found += [reason for pattern, reason in _PATTERNS if pattern.search(read)]
    found += ["it asks to ignore instructions" for pattern in _IGNORING if pattern.search(read)]
    return list(dict.fromkeys(found))


def strange_addresses(text: str, known: str) -> list[str]:
    """Why an instruction must not enter a prompt unseen although its complaint was harmless: it brings a web
    or mail address that the prompt (`known`) does not hold."""
    new = [a for a in dict.fromkeys(_ADDRESS.findall(text)) if a.casefold() not in known.casefold()]
    return [f"it brings the address {', '.join(new[:3])} into the prompt"] if new else []

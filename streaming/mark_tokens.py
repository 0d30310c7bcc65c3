"""Tokens by which a text tells CosyVoice how it is to sound. The lists are those of its tokenizer.

All are in Unicode's composed form (NFC), brackets included: ``"[breath]"``, ``"[AY0]"``,
``"[ǎo]"``.
"""

from __future__ import annotations

from typing import Final

_SOUNDS = """
breath noise laughter cough clucking accent quick_breath hissing sigh vocalized-noise lipsmack mn
"""
_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
_INITIALS = "b c ch d f g h j k l m n p q r s sh t w x y z zh"
_FINALS = """
a ai an ang ao e ei en eng i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè ié iòng ióng iù iú
iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ o ong ou u uang ue un uo uà uài uàn uàng uá
uái uán uáng uè ué uì uí uò uó uā uāi uān uāng uē uě uī uō uǎ uǎi uǎn uǎng uǐ uǒ vè à ài àn àng ào
á ái án áng áo è èi èn èng èr é éi én éng ér ì ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān
āng āo ē ēi ēn ēng ě ěi ěn ěng ěr ī īn īng ō ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ
ǜ
"""


def _tokens(words: str) -> frozenset[str]:
    return frozenset(f"[{word}]" for word in words.split())


SPANS: Final = ("strong", "laughter")
"""Sounds that last from ``<laughter>`` to ``</laughter>``."""
SOUNDS: Final = _tokens(_SOUNDS) | {f"<{slash}{name}>" for name in SPANS for slash in ("", "/")}
"""Sounds of a person speaking, of CosyVoice 2 and 3."""
ARPABET_VOWELS: Final = _tokens(
    " ".join(vowel + stress for vowel in _VOWELS.split() for stress in ("", "0", "1", "2"))
)
ARPABET: Final = ARPABET_VOWELS | _tokens(_CONSONANTS)
"""English phonemes of CosyVoice 3; the digit of a vowel is its stress."""
PINYIN_INITIALS: Final = _tokens(_INITIALS)
PINYIN_FINALS: Final = _tokens(_FINALS)
PINYIN: Final = PINYIN_INITIALS | PINYIN_FINALS
"""Halves of Mandarin syllables of CosyVoice 3; a final without a tone mark has the neutral tone."""

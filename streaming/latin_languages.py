"""Words and letters that tell languages in Latin script from each other."""

from __future__ import annotations

import re
from typing import Final

from cosyvoice_stream.streaming.word_lists import word_set

_WORDS: Final = {
    "en": (
        "the and of to is are was were be been have has had will would can could should this that "
        "these those with for from you your they we he she it its not but or if at by an my our "
        "about into than then there here what which who when where how do does did please call "
        "costs take buy bought about over under only just as on in am me us i'm it's don't"
    ),
    "de": (
        "der die das den dem des ein eine einen einem einer und oder aber nicht ist sind war waren "
        "wird werden wurde hat haben hatte ich du er sie wir ihr mit von für auf aus bei nach zu "
        "zum zur im am um bis über unter vor sich auch nur noch schon wie wenn dass uhr kostet "
        "hoch etwa gibt es kilometer prozent"
    ),
    "fr": (
        "le la les un une des du de et ou mais est sont était être avoir a ont il elle nous vous "
        "ils elles je tu dans sur avec pour par pas que qui ce cette ces son sa ses au aux en plus "
        "coûte environ depuis chez heures l'heure c'est il y"
    ),
    "es": (
        "el la los las un una unos unas y o pero es son está están fue ser hay que de del al en "
        "con por para no se su sus lo como más muy este esta desde hasta cuesta tiene tengo casi "
        "años"
    ),
    "it": (
        "il lo la i gli le un uno una e o ma è sono era essere ha ho hanno che di del della dei "
        "nel nella costo con per non si da al alla come più questo questa costa circa dopo alle"
    ),
    "pt": (
        "o a os as um uma uns e ou mas é são foi ser tem há que de do da dos das no na em com por "
        "para não se seu sua mais como este esta custa até às foram você"
    ),
    "nl": (
        "de het een en of maar niet is zijn was waren wordt heeft hebben ik je hij zij wij met van "
        "voor op uit bij naar te om over onder ook nog als dat die deze dit kost ongeveer"
    ),
    "pl": "i w z na do nie jest są był to się że o po za od dla przez kosztuje około ma roku",
    "sv": "och det att i en ett är på som för med den av till inte har var kostar om ungefär jag",
    "tr": "ve bir bu da de için ile çok olan var yok ne kadar daha gibi saat yüzde kişi",
}
_ENGLISH: Final = word_set(_WORDS["en"])
_ENGLISH_TOO: Final = word_set(
    "am war die hat man son no do to of was is over on par sat sur net op plus des once ten six "
    "has pour vor met dans les elle era come sale fine more hay sin con del van ton main pays via"
)
"""Words of other languages that are also words or names in English."""
_IN_NAMES: Final = word_set("el la las los le du de der den das un una van al il")
"""Words that begin so many names that one of them alone tells nothing."""
_LANGUAGES_OF: Final[dict[str, list[str]]] = {}
for _language, _listed in _WORDS.items():
    for _word in word_set(_listed):
        if _language == "en" or (len(_word) > 1 and _word not in _ENGLISH_TOO | _ENGLISH):
            _LANGUAGES_OF.setdefault(_word, []).append(_language)
_LETTERS: Final = (
    ("de", re.compile("[äöüßÄÖÜ]")),
    ("es", re.compile("[ñ¿¡Ñ]")),
    ("pt", re.compile("[ãõÃÕ]")),
    ("fr", re.compile("[œêëçùûîïÊÇ]")),
    ("it", re.compile("[ìòè]")),
    ("pl", re.compile("[ąęłńśźżĄĘŁŃŚŹŻ]")),
    ("sv", re.compile("[åÅ]")),
    ("tr", re.compile("[ığşİĞŞ]")),
)
_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u024f]+(?:['’][a-z]+)?")


def latin_language(text: str, *, margin: float = 0.0) -> str | None:
    """Tell which language in Latin script a text is in; None if no word of it tells.

    Args:
        text: A sentence or a part of one. Of two languages with as many of their words the
            one that is listed first wins: English, where in doubt. One word is enough for English
            only.
        margin: How many more words of one language than of any other make it certain.
    """
    scores = dict.fromkeys(_WORDS, 0.0)
    for word in _WORD.findall(text):
        lower = word.lower()
        for language in _LANGUAGES_OF.get(lower, ()):
            scores[language] += 0.5 if lower in _IN_NAMES else 1.0
    if not text.isascii():
        for language, letters in _LETTERS:
            scores[language] += 1.5 * len(letters.findall(text))
    best = max(scores, key=scores.__getitem__)
    second = max(score for language, score in scores.items() if language != best)
    needed = 1.0 if best == "en" else 1.5
    return best if scores[best] >= max(needed, second + margin) else None

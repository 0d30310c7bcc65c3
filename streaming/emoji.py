"""Characters that are seen and not said: pictures, box drawing, invisible marks."""

from __future__ import annotations

from typing import Final

EMOJI: Final = (
    r"\u231a\u231b\u2328\u23cf\u23e9-\u23f3\u23f8-\u23fa"
    r"\u25a0-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\u3030\u303d"
    r"\U0001f000-\U0001faff\U000e0020-\U000e007f\u20e3"
)
"""Ranges of a character class: geometric shapes, symbols, dingbats, emoji with their skin tones,
flags and tags. Without © ® ™ and the arrows, which are words of a text."""

BOX_DRAWING: Final = r"\u2500-\u259f"
"""Ranges of a character class: lines, corners, shades and blocks."""

BOX_BARS: Final = "│┃║╎╏┆┇┊┋"
"""Box drawing characters that separate the cells of a row."""

INVISIBLE: Final = r"\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufe0e\ufe0f"
"""Ranges of a character class: soft hyphen, zero-width space, direction marks, byte order mark and
variation selectors."""

ZERO_WIDTH_JOINER: Final = "\u200d"
"""Joins emoji; between letters of Indic and Arabic scripts it is part of the spelling."""

KEYCAP: Final = r"[0-9#*]\ufe0f?\u20e3"
"""A digit or sign on a key."""

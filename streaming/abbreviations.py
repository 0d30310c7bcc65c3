"""Words after which a full stop may not end the sentence, and words at which a sentence may part.

All are lower case and without the last full stop.
"""

from __future__ import annotations

from typing import Final

from cosyvoice_stream.streaming.word_lists import word_set

ALWAYS: Final = word_set(
    # titles, references
    "dr mr mrs ms mx prof gen col capt cpt cmdr lt sgt maj adm rev hon gov sen supt mt "
    "messrs mmes vs viz cf approx ca resp incl excl e.g i.e eg ie a.k.a w.r.t "
    # German, French, Spanish, Italian, Dutch
    "z.b d.h u.a o.ä i.d.r s.o s.u v.a u.u z.t bzw ggf evtl ca bspw sog vgl hr hrn fr frl inkl "
    "zzgl mme mlle mgr sra srta dra sig dott avv dhr mevr bijv "
    # Russian, Polish
    "т.е т.к т.д ул им np tj"
)
"""The sentence goes on."""

BEFORE_NUMBER: Final = word_set(
    "no nos nr núm num art p pp pg fig figs ch chap sec sect vol vols eq eqs par abs kap abb tab "
    "jan feb mar apr jun jul aug sep sept oct okt nov dec dez tel bd hs cap pág"
)
"""The sentence goes on if a number follows."""

MAYBE: Final = word_set(
    "inc ltd co corp bros jr sr esq llc plc gmbh ag ave blvd rd sq bldg etc usw ph.d m.sc "
    "st ft dept est min max misc ref univ al str av "
    "b.sc m.d b.a m.a s.a n.v b.v z.hd dgl mio mrd tsd std ecc enz rys"
)
"""The sentence goes on unless the next word usually starts one; so do dotted letters and
initials."""

MERIDIEM: Final = word_set("a.m p.m")
"""The sentence goes on unless a capital follows."""

STARTERS: Final = word_set(
    "a an the this that these those it its he she we they you i my your his her our their there "
    "here what when where who why how if in on at for as so but and or yet then now not no yes "
    "also after before since while please let do does did is are was were can could will would "
    "der die das ein eine er sie es wir ihr ich und aber wenn dann le la les un une il elle nous "
    "vous el los las yo"
)
"""Words that, with a capital, start a sentence far more often than they continue a name."""

GERMAN_ORDINAL: Final = word_set(
    "januar jänner februar märz april mai juni juli august september oktober november dezember "
    "jahrhundert klasse stock platz kapitel geburtstag tag"
)
"""After a number and a full stop these make it an ordinal."""

JOINTS: Final = word_set(
    "and or but because so that which who whose when while where if although though since unless "
    "until before after with without for from into onto about over under between through during "
    "against than "
    "und oder aber weil dass wenn denn sondern damit mit ohne für von nach wegen "
    "et ou mais parce que quand avec sans pour "
    "y pero porque cuando perché quando "
    "и но или что чтобы потому когда если для без"
)
"""Conjunctions and prepositions: an overlong sentence is parted before one of them."""

LONGEST_WORD: Final = 14
"""Characters of look-ahead that decide whether the next word is in one of these sets."""


def may_go_on(word: str) -> bool:
    """Tell whether a sentence may go on behind a word and its full stop."""
    lower = word.lower()
    listed = any(lower in words for words in (ALWAYS, BEFORE_NUMBER, MAYBE, MERIDIEM))
    return listed or "." in word

"""Units, currencies and abbreviations of English."""

from __future__ import annotations

from typing import Final

from cosyvoice_stream.streaming.word_lists import word_list

UNITS: Final[dict[str, str]] = {
    "km": "kilometer",
    "m": "meter",
    "cm": "centimeter",
    "mm": "millimeter",
    "μm": "micrometer",
    "µm": "micrometer",
    "nm": "nanometer",
    "kg": "kilogram",
    "g": "gram",
    "mg": "milligram",
    "μg": "microgram",
    "t": "ton",
    "L": "liter",
    "l": "liter",
    "mL": "milliliter",
    "ml": "milliliter",
    "h": "hour",
    "hr": "hour",
    "hrs": "hour",
    "min": "minute",
    "mins": "minute",
    "s": "second",
    "sec": "second",
    "secs": "second",
    "ms": "millisecond",
    "km/h": "kilometer per hour",
    "kmh": "kilometer per hour",
    "m/s": "meter per second",
    "mph": "mile per hour",
    "m²": "square meter",
    "km²": "square kilometer",
    "cm²": "square centimeter",
    "m³": "cubic meter",
    "cm³": "cubic centimeter",
    "inch": "inch",
    "ft": "foot",
    "yd": "yard",
    "mi": "mile",
    "lb": "pound",
    "lbs": "pound",
    "oz": "ounce",
    "gal": "gallon",
    "tbsp": "tablespoon",
    "tsp": "teaspoon",
    "°C": "degree Celsius",
    "℃": "degree Celsius",
    "°F": "degree Fahrenheit",
    "℉": "degree Fahrenheit",
    "°": "degree",
    "Hz": "hertz",
    "kHz": "kilohertz",
    "MHz": "megahertz",
    "GHz": "gigahertz",
    "KB": "kilobyte",
    "kB": "kilobyte",
    "MB": "megabyte",
    "GB": "gigabyte",
    "TB": "terabyte",
    "kbps": "kilobit per second",
    "Mbps": "megabit per second",
    "Gbps": "gigabit per second",
    "W": "watt",
    "kW": "kilowatt",
    "MW": "megawatt",
    "kWh": "kilowatt hour",
    "V": "volt",
    "mA": "milliamp",
    "mAh": "milliamp hour",
    "dB": "decibel",
    "kPa": "kilopascal",
    "hPa": "hectopascal",
    "kcal": "kilocalorie",
    "cal": "calorie",
    "px": "pixel",
    "fps": "frame per second",
    "rpm": "revolution per minute",
    "bpm": "beat per minute",
}
"""Behind a number; the name in the singular."""
_IRREGULAR: Final = {"foot": "feet", "inch": "inches", "hertz": "hertz"}


def unit(symbol: str, amount: str) -> str:
    """Name a unit behind an amount, in the plural unless that is 1."""
    name = UNITS[symbol]
    if amount in ("1", "-1"):
        return name
    head, space, rest = name.partition(" ")
    if head in ("square", "cubic", "kilowatt", "milliamp"):
        return f"{head} {rest}s"
    plural = _IRREGULAR.get(head, head + ("" if head.endswith("hertz") else "s"))
    return plural + space + rest


CURRENCIES: Final[dict[str, tuple[str, str, str]]] = {
    "$": ("dollar", "dollars", "cent"),
    "US$": ("US dollar", "US dollars", "cent"),
    "USD": ("US dollar", "US dollars", "cent"),
    "HK$": ("Hong Kong dollar", "Hong Kong dollars", "cent"),
    "€": ("euro", "euros", "cent"),
    "EUR": ("euro", "euros", "cent"),
    "£": ("pound", "pounds", "penny"),
    "GBP": ("pound", "pounds", "penny"),
    "¥": ("yen", "yen", ""),
    "JPY": ("yen", "yen", ""),
    "CNY": ("yuan", "yuan", ""),
    "RMB": ("yuan", "yuan", ""),
    "₩": ("won", "won", ""),
    "₹": ("rupee", "rupees", ""),
}
"""Singular, plural, and the hundredth part."""

MONTHS: Final = word_list(
    "January February March April May June July August September October November December"
)
MONTH_NAMES: Final = {
    name: month
    for month in MONTHS
    for name in {month, month[:3], "Sept" if month == "September" else month}
}

TITLES: Final = {
    "Dr": "Doctor",
    "Mr": "Mister",
    "Mrs": "Missus",
    "Ms": "Miz",
    "Prof": "Professor",
    "St": "Saint",
    "Gen": "General",
    "Col": "Colonel",
    "Capt": "Captain",
    "Cpt": "Captain",
    "Lt": "Lieutenant",
    "Sgt": "Sergeant",
    "Maj": "Major",
    "Sen": "Senator",
    "Rep": "Representative",
    "Gov": "Governor",
    "Rev": "Reverend",
    "Hon": "Honorable",
    "Mt": "Mount",
    "Ft": "Fort",
}
"""In front of a name."""

ABBREVIATIONS: Final = {
    "e.g": "for example",
    "i.e": "that is",
    "etc": "et cetera",
    "vs": "versus",
    "approx": "approximately",
    "incl": "including",
    "excl": "excluding",
    "viz": "namely",
    "cf": "compare",
    "a.k.a": "also known as",
    "Inc": "Incorporated",
    "Ltd": "Limited",
    "Corp": "Corporation",
    "Co": "Company",
    "Bros": "Brothers",
    "Jr": "Junior",
    "Sr": "Senior",
    "Ave": "Avenue",
    "Blvd": "Boulevard",
    "Rd": "Road",
    "St": "Street",
    "Dr": "Drive",
    "dept": "department",
    "Dept": "Department",
    "est": "established",
    "min": "minimum",
    "max": "maximum",
    "misc": "miscellaneous",
    "Ph.D": "PhD",
    "M.D": "MD",
    "B.A": "BA",
    "M.A": "MA",
}
"""With a full stop behind them."""

BEFORE_NUMBER: Final = {
    "No": "number",
    "no": "number",
    "Nos": "numbers",
    "Fig": "Figure",
    "fig": "figure",
    "Figs": "Figures",
    "Vol": "Volume",
    "vol": "volume",
    "Ch": "Chapter",
    "ch": "chapter",
    "Sec": "Section",
    "sec": "section",
    "Sect": "Section",
    "Eq": "Equation",
    "eq": "equation",
    "p": "page",
    "pp": "pages",
    "pg": "page",
    "Art": "Article",
    "art": "article",
    "Ext": "extension",
    "ext": "extension",
}

ROMAN_CARDINAL: Final = word_list(
    "Chapter Part Act Scene Section Volume Vol Book Phase Type Class War Article Appendix Level "
    "Stage Figure Table Episode Season Rocky Bowl Fantasy Title Schedule Unit Grade "
    "Tier Group Lesson"
)
ROMAN_ORDINAL: Final = word_list(
    "Henry Louis Elizabeth George Edward Charles William James Richard Philip Ferdinand Frederick "
    "Napoleon Alexander Nicholas Catherine Peter John Paul Pius Benedict Leo Gregory Innocent "
    "Clement Urban Ivan Mary Ramses Ptolemy Francis Otto Rudolf Wilhelm Leopold Christian Gustav "
    "Carl Felipe Carlos Alfonso Pedro Umberto Emmanuel Albert Harald Haakon Olav Cleopatra Darius "
    "Edgar Sixtus"
)

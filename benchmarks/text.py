"""How well, how fast and with how much delay text is read.

    python benchmarks/text.py [--json out.json]

Prints the share of the corpus (`tests/data/text_corpus.jsonl`) that is read right, beside that of
the library wetext where it is installed (`pip install wetext`), and each sentence that is read
wrong; the time per character of cleaner, normaliser and clause splitter on fragments; and how long
characters are held back when 20 fragments arrive in a second.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from cosyvoice_stream.streaming.clauses import ClauseSplitter
from cosyvoice_stream.streaming.cleaner import TextCleaner
from cosyvoice_stream.streaming.normalizer import Normalizer
from support.text_corpus import Sentence, sentences, spoken

FRAGMENT_CHARS = 4
FRAGMENTS_PER_S = 20
ANSWERS = {
    "zh": "好的，我来说明一下。**首先**，这个方案的总成本大约是3500元，比去年低了12.5%。"
    "其次，安装需要2个小时左右，"
    "建议在下午2:30之前开始，这样当天就能完成。"
    "如果中途遇到问题，可以先查看说明书的第3页，或者直接联系我们的客服。"
    "另外，设备在运行时温度会升高，这是正常现象，不需要担心。最后，请记得每隔一段时间清理一次滤网。\n\n",
    "en": "Sure, let me explain how it works. **First**, the total cost is about $3,500, which is "
    "12.5% less than last year. Second, the installation takes roughly 2 hours, so please start "
    "before 2:30 pm if you want to finish on the same day. If something goes wrong, look at page 3 "
    "of the manual, or simply call our support team and ask for Dr. Smith. The device gets warm "
    "while it runs, which is normal. Finally, remember to clean the filter from time to time.\n\n",
    "ja": "はい、説明します。まず、費用は全部で3500円ぐらいで、去年より12.5%安くなりました。"
    "次に、設置には"
    "2時間ほどかかりますので、午後2:30までに始めてください。問題があれば、説明書の3ページを見るか、"
    "サポートに連絡してください。動作中は少し温かくなりますが、心配はいりません。\n\n",
}


def wetext_reader() -> Callable[[Sentence], str] | None:
    """The library alone, told the language; None where it is not installed."""
    try:
        from wetext import Normalizer as Library
    except ImportError:
        return None
    readers = {lang: Library(lang=lang, operator="tn") for lang in ("zh", "en", "ja")}

    def read(sentence: Sentence) -> str:
        reader = readers.get({"yue": "zh"}.get(sentence.language, sentence.language))
        try:
            return sentence.text if reader is None else reader.normalize(sentence.text)
        except AssertionError:
            return "(the library failed)"

    return read


def reading() -> dict[str, object]:
    """Score ours and the library, and list what is wrong."""
    corpus = sentences()
    groups = {name: {name} for name in ("zh", "yue", "en", "ja")}
    groups["others"] = {sentence.language for sentence in corpus} - {*groups}
    groups["all"] = {sentence.language for sentence in corpus}
    result: dict[str, object] = {}
    library = wetext_reader()
    for name, read in (("ours", lambda s: spoken(s.text)), ("wetext", library)):
        if read is None:
            print("wetext is not installed: no comparison")
            continue
        said = [(sentence, read(sentence)) for sentence in corpus]
        rates = {}
        for group, languages in groups.items():
            chosen = [(s, w) for s, w in said if s.language in languages]
            rates[group] = sum(s.is_right(w) for s, w in chosen) / len(chosen)
        shares = "  ".join(f"{group} {rate:6.1%}" for group, rate in rates.items())
        print(f"read right, {name:7}{shares}   of {len(corpus)}")
        result[name] = rates
        if name == "ours":
            for sentence, words in said:
                if not sentence.is_right(words):
                    print(f"  wrong: {sentence.text} → {words}")
    return result


def stages_time(text: str) -> float:
    """Seconds for all stages over fragments of a text."""
    cleaner, normalizer, splitter = TextCleaner(), Normalizer(), ClauseSplitter()
    began = time.process_time()
    for start in range(0, len(text), FRAGMENT_CHARS):
        for cleaned in cleaner.push(text[start : start + FRAGMENT_CHARS]):
            for read in normalizer.push(cleaned):
                splitter.push(read.text)
    for cleaned in cleaner.flush():
        normalizer.push(cleaned)
    for read in normalizer.flush():
        splitter.push(read.text)
    splitter.flush()
    return time.process_time() - began


def speed() -> dict[str, object]:
    """Time per character, and how it grows with the length of the text."""
    result: dict[str, object] = {}
    dense = "".join(sentence.text + "\n" for sentence in sentences())
    for name, text in {**ANSWERS, "corpus": dense}.items():
        unit = text * (1 + 5000 // len(text))
        # A long text and ten short ones in turn, so that what else the machine does weighs alike.
        rounds = [
            (stages_time(unit * 10), sum(stages_time(unit) for _ in range(10))) for _ in range(5)
        ]
        per_char_us = min(long for long, _ in rounds) / len(unit) / 10 * 1e6
        growth = statistics.median(10 * long / short for long, short in rounds)
        print(f"{name:7}{per_char_us:6.1f} µs per character; 10 × the text takes {growth:.1f} ×")
        result[name] = {"us_per_char": per_char_us, "growth": growth}
    return result


def fragments_of(text: str) -> list[str]:
    """Cut as language models do: words with the space before them, pairs of wide characters."""
    return re.findall(r"\s?[A-Za-z]+|\d{1,3}|[^\x00-\x7f]{1,2}|\s+|.", text)


def waits(text: str) -> list[float]:
    """Milliseconds that each character is held back."""
    cleaner, normalizer = TextCleaner(), Normalizer()
    arrived: list[float] = []
    waited: list[float] = []
    now = 0.0
    for fragment in fragments_of(text):
        arrived += [now] * len(fragment)
        for cleaned in cleaner.push(fragment):
            for read in normalizer.push(cleaned):
                waited += [(now - arrived[end - 1]) * 1000 for end in read.ends]
        now += 1 / FRAGMENTS_PER_S
    return waited


def hold_back() -> dict[str, object]:
    """Distribution of the waits."""
    result: dict[str, object] = {}
    dense = {
        f"corpus {language}": "".join(s.text for s in sentences() if s.language == language)
        for language in ("zh", "en", "ja")
    }
    for name, text in {**{k: v * 5 for k, v in ANSWERS.items()}, **dense}.items():
        held = sorted(waits(text))
        p50, p95 = held[len(held) // 2], held[int(len(held) * 0.95)]
        print(
            f"{name:10} held back: mean {statistics.mean(held):5.1f}  p50 {p50:5.0f}  "
            f"p95 {p95:5.0f}  longest {held[-1]:5.0f} ms at {FRAGMENTS_PER_S} fragments/s"
        )
        result[name] = {"p50_ms": p50, "p95_ms": p95, "max_ms": held[-1]}
    return result


def main() -> None:
    """Print everything; write it as JSON where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = {"reading": reading(), "speed": speed(), "hold_back": hold_back()}
    if options.json:
        options.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()

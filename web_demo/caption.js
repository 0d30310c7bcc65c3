// The text that is spoken, with the word that is heard now lit up.

export class Caption {
  /** @param {HTMLElement} element shows the text; scrolls by itself, never the page */
  constructor(element) {
    this.element = element;
    this.reset("");
  }

  reset(text) {
    this.text = text;
    this.words = [];
    this.heard = 0; // words that have begun
    // The server counts code points, strings count UTF-16 units.
    this.point = 0;
    this.unit = 0;
    this.shown = 0;
    this.rest = document.createTextNode(text);
    this.element.replaceChildren(this.rest);
    this.element.scrollTop = 0;
  }

  /** Learn when words are heard; they come in order. */
  add(words) {
    for (const word of words) {
      const start = this.#unitOf(word.char_start);
      const end = this.#unitOf(word.char_end);
      const node = document.createElement("span");
      node.textContent = this.text.slice(start, end);
      this.rest.before(this.text.slice(this.shown, start), node);
      this.shown = end;
      this.words.push({ node, start: word.start_ms, end: word.end_ms });
    }
    this.rest.data = this.text.slice(this.shown);
  }

  /** Light the word that is heard at `ms`. */
  at(ms) {
    while (this.heard < this.words.length && this.words[this.heard].start <= ms) {
      this.words[this.heard - 1]?.node.classList.remove("now");
      const { node } = this.words[this.heard++];
      node.classList.add("said", "now");
      this.#follow(node);
    }
    const last = this.words[this.heard - 1];
    if (last && ms >= last.end) last.node.classList.remove("now");
  }

  /** Nothing is heard any more. */
  quiet() {
    this.words[this.heard - 1]?.node.classList.remove("now");
  }

  #unitOf(point) {
    for (; this.point < point; this.point++) {
      this.unit += this.text.codePointAt(this.unit) > 0xffff ? 2 : 1;
    }
    return this.unit;
  }

  #follow(node) {
    const { element } = this;
    const top = node.offsetTop - element.offsetTop;
    if (top < element.scrollTop || top + node.offsetHeight > element.scrollTop + element.clientHeight) {
      element.scrollTop = top - element.clientHeight / 3;
    }
  }
}

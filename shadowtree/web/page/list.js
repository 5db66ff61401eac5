// A list of which only the visible rows are in the document; ten thousand scroll as well as ten.

const BEYOND = 6; // rows drawn above and below what is visible

class VirtualList {
  /** `draw(item)` makes a row; `sign(item)` is a text that changes when the row has to be made again. */
  constructor(place, { label, height, draw, sign, isTall = () => false }) {
    Object.assign(this, { height, draw, sign, isTall, items: [], places: new Map(), made: new Map(), tall: new Map() });
    this.canvas = el("div.canvas", { role: "list", "aria-label": label });
    this.scroll = el("div.scroll", {}, this.canvas);
    this.scroll.addEventListener("scroll", () => this.paint(), { passive: true });
    this.sizes = new ResizeObserver((entries) => this.measure(entries));
    this.sizes.observe(this.scroll);
    place.append(this.scroll);
  }

  /** Show these items; each has a `key`. With `at`, that one is in the middle. */
  show(items, at = null) {
    this.items = items;
    this.places = new Map(items.map((item, index) => [item.key, index]));
    if (at !== null) this.reveal(at, "center");
    this.paint();
  }

  /** Paint before the next frame, once for several calls. */
  paintSoon() {
    this.soon ||= requestAnimationFrame(async () => {
      await untilReleased();
      this.soon = null;
      this.paint();
    });
  }

  /** Tall rows are few, so sums over them are cheap. */
  tallBefore(index) {
    let sum = 0;
    for (const [key, height] of this.tall) if (this.places.get(key) < index) sum += height - this.height;
    return sum;
  }

  top(index) {
    return index * this.height + this.tallBefore(index);
  }

  heightOf(item) {
    return this.tall.get(item.key) || this.height;
  }

  /** The first row that is at or below a position. */
  indexAt(position) {
    let [low, high] = [0, this.items.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.top(middle + 1) <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Draw the rows that are visible now, and keep the one that has the focus. */
  paint() {
    for (const key of this.tall.keys())
      if (!this.places.has(key) || !this.isTall(this.items[this.places.get(key)])) this.tall.delete(key);
    const { scrollTop, clientHeight } = this.scroll;
    const first = Math.max(0, this.indexAt(scrollTop) - BEYOND);
    const last = Math.min(this.items.length, this.indexAt(scrollTop + clientHeight) + BEYOND + 1);
    const wanted = new Set();
    for (let index = first; index < last; index++) wanted.add(index);
    const focused = this.places.get(this.focusedKey());
    if (focused !== undefined) wanted.add(focused);
    setStyle(this.canvas, "height", `${this.top(this.items.length)}px`);
    this.drop(wanted);
    for (const index of [...wanted].sort((a, b) => a - b)) this.place(index);
  }

  focusedKey() {
    const row = document.activeElement && document.activeElement.closest(".row");
    return row && this.canvas.contains(row) ? row.key : undefined;
  }

  drop(wanted) {
    for (const [key, { row }] of this.made) {
      if (wanted.has(this.places.get(key))) continue;
      this.sizes.unobserve(row);
      row.remove();
      this.made.delete(key);
    }
  }

  /** Make a row if it is new or changed, and put it where it belongs in the order of a screen reader. */
  place(index) {
    const item = this.items[index];
    const sign = this.sign(item);
    let made = this.made.get(item.key);
    if (!made || made.sign !== sign) {
      const row = this.draw(item);
      row.classList.add("row");
      row.key = item.key;
      if (made) this.swap(made.row, row);
      else this.insert(index, row);
      made = { row, sign };
      this.made.set(item.key, made);
      if (this.isTall(item)) this.sizes.observe(row);
    }
    setAttributes(made.row, { role: "listitem", "aria-setsize": this.items.length, "aria-posinset": index + 1 });
    setStyle(made.row, "transform", `translateY(${this.top(index)}px)`);
  }

  insert(index, row) {
    const after = [...this.canvas.children].find((other) => this.places.get(other.key) > index);
    this.canvas.insertBefore(row, after || null);
  }

  /** Replace an old row by a new one, which gets the focus of the old one. */
  swap(old, row) {
    const part = old.contains(document.activeElement) ? document.activeElement.dataset.part : null;
    this.sizes.unobserve(old);
    old.replaceWith(row);
    if (part !== null)
      (row.querySelector(`[data-part="${part || "main"}"]`) || row.querySelector("button")).focus({
        preventScroll: true,
      });
  }

  measure(entries) {
    for (const { target } of entries) {
      if (target.key === undefined || !this.canvas.contains(target)) continue;
      this.tall.set(target.key, Math.ceil(target.getBoundingClientRect().height));
    }
    this.paint();
  }

  /** Whether the last row is visible. */
  isAtEnd() {
    return this.scroll.scrollTop + this.scroll.clientHeight >= this.scroll.scrollHeight - 4;
  }

  /** Scroll so that an item is visible; `block` "center" puts it into the middle. */
  reveal(key, block = "nearest") {
    const index = this.places.get(key);
    if (index === undefined) return;
    const [top, height] = [this.top(index), this.heightOf(this.items[index])];
    const { scrollTop, clientHeight } = this.scroll;
    setStyle(this.canvas, "height", `${this.top(this.items.length)}px`);
    if (block === "center") this.scroll.scrollTop = top - (clientHeight - height) / 2;
    else if (top < scrollTop) this.scroll.scrollTop = top;
    else if (top + height > scrollTop + clientHeight)
      this.scroll.scrollTop = Math.min(top, top + height - clientHeight);
    this.paint();
  }

  /** Give the focus to the main button of an item. */
  focus(key) {
    this.reveal(key);
    const made = this.made.get(key);
    if (made) made.row.querySelector('[data-part="main"]').focus({ preventScroll: true });
  }
}

/** Set a style by script, which the content security policy allows, where it changes. */
function setStyle(element, name, value) {
  if (element.style[name] !== value) element.style[name] = value;
}

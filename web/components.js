// What pages of Keyhush are made of: numbers as people read them, tables that sort, tiles. Plain custom elements without a build step.
// They know nothing of runs or servers, and get what they show as a property `data`. Texts are never taken for markup.
"use strict";
(() => {
  const Keyhush = (window.Keyhush = window.Keyhush || {});

  /** An element. `onclick` and its like are listeners, `own` is its colour, `text` what stands in it. */
  Keyhush.el = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (name === "own") made.style.setProperty("--own", value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value != null) made.setAttribute(name, value);
    }
    made.append(...children.flat().filter((child) => child != null && child !== false));
    return made;
  };
  const { el } = Keyhush;

  const MISSING = "\u2013";
  const number = (value) => {
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(Number(value.toPrecision(4)));
  };
  const seconds = (value) => {
    if (value >= 7200) return `${(value / 3600).toFixed(1)} h`;
    if (value >= 120) return `${(value / 60).toFixed(1)} min`;
    return value >= 1 ? `${value.toFixed(1)} s` : `${number(value * 1000)} ms`;
  };
  /** Rounded up, never down: an epsilon must not flatter. */
  const epsilon = (value) => {
    if (value <= 0) return "0";
    const scale = 10 ** (3 - Math.floor(Math.log10(value)));
    return number(Math.ceil(value * scale) / scale);
  };
  const UNITS = { share: (value) => `${(100 * value).toFixed(2)} %`, epsilon, seconds, number };

  /** A number in its unit. */
  Keyhush.shown = (unit, value) => (value == null || Number.isNaN(value) ? MISSING : (UNITS[unit] || number)(value));

  /** A number on an axis: as short as possible while it differs from its neighbours. */
  Keyhush.tick = (unit, value, step) => {
    if (value == null) return "";
    if (unit === "seconds") return seconds(value);
    const factor = unit === "share" ? 100 : 1;
    const places = Math.min(6, Math.max(0, -Math.floor(Math.log10(Math.abs(step * factor) || 1) + 1e-9)));
    const large = () => Number((value * factor).toPrecision(3)).toExponential().replace("e+", "e");
    const text = Math.abs(value * factor) >= 1e6 ? large() : (value * factor).toFixed(places);
    return unit === "share" ? `${text} %` : text.replace(/\B(?=(\d{3})+$)/g, text.includes(".") ? "" : ",");
  };

  /** Says something to those who hear pages. */
  Keyhush.announce = (words) => {
    let region = document.getElementById("announced");
    if (!region) {
      region = el("div", { id: "announced", class: "hidden", "aria-live": "polite" });
      document.body.append(region);
    }
    region.textContent = words;
  };

  /** Draws something again and gives the focus back to the control that had it, by its `data-key`. */
  Keyhush.keepingFocus = (root, draw) => {
    const key = root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    draw();
    if (key) root.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  };

  /** What comes first: numbers before texts, and what is not there last, whichever way it is sorted. */
  const compare = (a, b, down) => {
    if (a == null || b == null) return (a == null) - (b == null);
    const [x, y] = [Number(a), Number(b)];
    const order = a === "" || b === "" || Number.isNaN(x) || Number.isNaN(y)
      ? String(a).localeCompare(String(b), "en", { numeric: true })
      : x - y;
    return down ? -order : order;
  };

  /**
   * A table that sorts. `data` is { caption, columns, rows, sort, key, selected }: a column is { key, label, value(row), cell(row),
   * number, minor }, where `minor` ones are left out on narrow screens; `sort` is the key of a column, after a "-" where the most
   * comes first. A click on a head tells it by the event "sort".
   */
  class Table extends HTMLElement {
    #last = "";
    set data(data) {
      const { columns, rows, sort = "", key = (row) => row.id } = data;
      const down = sort.startsWith("-");
      const by = columns.find((column) => column.key === sort.replace(/^-/, ""));
      const sorted = by?.value ? [...rows].sort((a, b) => compare(by.value(a), by.value(b), down)) : rows;
      this.order = sorted.map(key);
      const body = sorted.map((row) => el("tr", { "data-row": key(row), "aria-selected": data.selected?.(row) },
        columns.map((column, i) => el(i === (data.named ?? 0) ? "th" : "td", {
          class: [column.number && "number", column.minor && "minor", column.class].filter(Boolean).join(" ") || null,
          scope: i === (data.named ?? 0) ? "row" : null,
          title: column.hint?.(row),
        }, column.cell ? column.cell(row) : (column.value(row) ?? MISSING)))));
      const head = columns.map((column) => el("th", {
        scope: "col",
        class: [column.number && "number", column.minor && "minor", column.class].filter(Boolean).join(" ") || null,
        "aria-sort": column === by ? (down ? "descending" : "ascending") : null,
      }, column.value && column.label && data.sort != null
        ? el("button", { type: "button", "data-key": `sort ${column.key}`, onclick: () => this.#sorted(column, by, down) }, column.label)
        : column.label));
      const table = el("table", {}, data.caption && el("caption", {}, data.caption), el("thead", {}, el("tr", {}, head)), el("tbody", {}, body));
      // Live data mostly changes nothing that is shown: then nothing is touched, and nobody is interrupted.
      if (table.outerHTML === this.#last) return;
      this.#last = table.outerHTML;
      Keyhush.keepingFocus(this, () => this.replaceChildren(table));
    }
    #sorted(column, by, down) {
      const first = column.number ? "-" : "";
      const next = column === by ? (down ? column.key : `-${column.key}`) : first + column.key;
      this.dispatchEvent(new CustomEvent("sort", { detail: next }));
    }
  }
  customElements.define("kh-table", Table);

  /** Numbers that people look for first: `data` is a list of { name, value, note }. */
  class Tiles extends HTMLElement {
    set data(tiles) {
      this.setAttribute("role", "group");
      this.replaceChildren(...tiles.map(({ name, value, note }) => el("div", {}, el("dl", {},
        el("dt", {}, name), el("dd", { class: "value" }, value), note && el("dd", { class: "note" }, note)))));
    }
  }
  customElements.define("kh-tiles", Tiles);

  /** The Markdown that statements are written in: headings, lists, paragraphs, bold and code. */
  const spans = (text) => text.split(/(\*\*.+?\*\*|`.+?`)/).map((part) => {
    if (part.startsWith("**") && part.length > 4) return el("strong", {}, part.slice(2, -2));
    return part.startsWith("`") && part.length > 2 ? el("code", {}, part.slice(1, -1)) : part;
  });
  Keyhush.markdown = (text) => text.split("\n\n").map((block) => block.trim()).filter(Boolean).map((block) => {
    const heading = block.match(/^#{1,5} (.*)/);
    if (heading) return el("h3", {}, spans(heading[1]));
    if (block.startsWith("- ")) return el("ul", {}, block.slice(2).split("\n- ").map((item) => el("li", {}, spans(item))));
    return el("p", {}, spans(block));
  });

  /** The number, and below it what it means. */
  Keyhush.priceOf = (words) => {
    const [value, ...rest] = words.split(" ");
    return /^[0-9]/.test(value) && rest.length ? [value.replace(/,$/, ""), el("small", {}, rest.join(" "))] : words;
  };

  /** The suggestions of a model after a prompt; those that are new since before are marked. */
  Keyhush.words = (sample, before) => el("span", { class: "words" }, sample.words.length === 0 ? "\u2013" : sample.words.flatMap((word, i) => [
    i > 0 && ", ", el(i ? "span" : "b", { class: before && !before.words.includes(word) ? "changed" : null }, word)]));
  Keyhush.prompt = (text) => el("span", { class: "prompt" }, text === "" ? "(beginning of a message)" : `${text} \u2026`);
  /** At most so many of a list, evenly, the first and the last among them. */
  Keyhush.some = (list, most) => (list.length <= most ? list
    : [...new Set(Array.from({ length: most }, (_, i) => Math.round((i * (list.length - 1)) / (most - 1))))].map((i) => list[i]));

  /** A small curve without axes. */
  Keyhush.small = (values, colour) => {
    const known = values.filter((value) => value != null);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 80 22");
    svg.setAttribute("class", "small");
    svg.setAttribute("aria-hidden", "true");
    if (known.length > 1) {
      const [low, high] = [Math.min(...known), Math.max(...known)];
      const y = (value) => 20 - (18 * (value - low)) / (high - low || 1);
      const points = values.map((value, i) => value != null && `${((80 * i) / (values.length - 1)).toFixed(1)},${y(value).toFixed(1)}`);
      const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
      line.setAttribute("points", points.filter(Boolean).join(" "));
      line.setAttribute("fill", "none");
      line.setAttribute("stroke", colour);
      line.setAttribute("stroke-width", "1.6");
      svg.append(line);
    }
    return svg;
  };

  /** Light or dark: as the system has it, until somebody chooses. */
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => { try { return localStorage.getItem("keyhush-theme"); } catch { return null; } };
  const apply = () => {
    document.documentElement.dataset.theme = remembered() || (dark.matches ? "dark" : "light");
    window.dispatchEvent(new Event("keyhush-theme"));
  };
  dark.addEventListener("change", apply);
  Keyhush.toggleTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("keyhush-theme", next); } catch { /* a browser that keeps nothing */ }
    document.documentElement.dataset.theme = next;
    window.dispatchEvent(new Event("keyhush-theme"));
  };
  apply();
})();

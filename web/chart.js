// Curves, drawn by uPlot: hover, zoom, keyboard, and the same numbers as a table.
//
// `data` of a <kh-chart> is { title, note, unit, log, better, xLabel, xUnit, sync, zoom, lines }, where the xUnit "time" is seconds since
// 1970; a line is { name, colour, dash, x, y, low, high, mean }: colour is the name of a CSS variable, low and high the edges of a band, mean a thin second line. A zoom by the
// pointer is told by the event "zoom", whose detail is [from, to], or null for all of it.
"use strict";
(() => {
  const { el, shown, tick, announce } = window.Keyhush;
  const HEIGHTS = { small: 200, wide: 380 };
  /** The most rows of the table of numbers. */
  const MOST_ROWS = 200;

  /** How clocks stand below an axis of time: the smallest step, the form, and the form where a new day begins. */
  const TIMES = [[86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1], [3600, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
    [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]];
  const X = { time: (value) => new Date(value * 1000).toLocaleTimeString([], { hour12: false }) };
  const shownX = (data, value) => (X[data.xUnit] ? X[data.xUnit](value) : shown("number", value));

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
  const faint = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  /** The last value that is there, at an index or before it. */
  const until = (values, index) => {
    for (let i = Math.min(index, values.length - 1); i >= 0; i--) if (values[i] != null) return values[i];
    return null;
  };

  /** An axis begins at zero where that is near; otherwise lines have a little room. */
  const room = (low, high) => {
    if (low == null) return [0, 1];
    const pad = (high - low || Math.abs(high) || 1) * 0.08;
    return [low >= 0 && low < 0.4 * high ? 0 : low - pad, high + pad];
  };

  /** Steps of an axis of rounds, of which there are no halves. */
  const WHOLE = Array.from({ length: 16 }, (_, i) => [1, 2, 5].map((step) => step * 10 ** i)).flat();

  /** From the first point to the last. uPlot has a range of its own for a single one, up to 100. */
  const ends = (plot) => {
    const xs = plot.data?.[0] || [];
    const [first, last] = [xs[0] ?? 0, xs.at(-1) ?? 0];
    return [first, last > first ? last : first + 1];
  };

  class Chart extends HTMLElement {
    #data = null;
    #plot = null;
    #shape = "";
    #mains = [];
    #parts = null;
    #watch = new ResizeObserver(() => this.#resize());
    #recolour = () => { this.#shape = ""; this.#draw(); };

    connectedCallback() {
      if (!this.#parts) this.#build();
      this.#watch.observe(this.#parts.plot);
      window.addEventListener("keyhush-theme", this.#recolour);
      this.#draw();
    }
    disconnectedCallback() {
      this.#watch.disconnect();
      window.removeEventListener("keyhush-theme", this.#recolour);
      this.#plot?.destroy();
      this.#plot = null;
      this.#shape = "";
    }
    set data(data) { this.#data = data; if (this.isConnected) this.#draw(); }

    #build() {
      const tool = (words, hint, action) => el("button", { type: "button", title: hint, "aria-pressed": "false", onclick: (event) => {
        const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
        event.currentTarget.setAttribute("aria-pressed", String(on));
        action(on);
      } }, words);
      this.#parts = {
        title: el("h3"), note: el("p", { class: "note" }), at: el("span", { class: "at" }), legend: el("ul", { class: "legend" }),
        plot: el("div", { class: "plot", tabindex: "0", role: "img", onkeydown: (event) => this.#key(event), onblur: () => this.#leave() }),
        numbers: el("div", { class: "numbers", hidden: true }),
      };
      const { title, note, at, legend, plot, numbers } = this.#parts;
      const tools = el("span", { class: "tools" },
        (this.#parts.log = tool("Log", "A logarithmic axis", (on) => { this.log = on; this.#draw(); })),
        tool("Wide", "As wide as the page", (on) => { this.classList.toggle("wide", on); this.#resize(); }),
        tool("Numbers", "The same as a table", (on) => { numbers.hidden = !on; this.#table(); }));
      this.append(el("figure", {}, el("figcaption", {}, title, at, el("span", { class: "grow" }), tools), note, legend, plot, numbers));
    }

    #draw() {
      const data = this.#data;
      if (!data || !this.#parts) return;
      // Only what is above zero has a logarithm. Zeros, such as an epsilon before the first round, are left out.
      const log = (this.log ?? data.log) && data.lines.every((line) => line.y.every((value) => value == null || value >= 0) && line.y.some((value) => value > 0));
      this.#parts.log.setAttribute("aria-pressed", String(!!log));
      this.#parts.title.textContent = data.title;
      this.#parts.note.textContent = data.note || "";
      this.#parts.note.hidden = !data.note;
      const shape = JSON.stringify([data.title, data.unit, log, data.xLabel, data.sync,
        data.lines.map((line) => [line.name, line.colour, line.dash, !!line.low, !!line.mean])]);
      const joined = this.#joined(log);
      if (shape !== this.#shape || !this.#plot) {
        this.#shape = shape;
        this.#plot?.destroy();
        this.#plot = new window.uPlot(this.#options(log), joined, this.#parts.plot);
      } else {
        this.#plot.setData(joined, true);
      }
      this.#values(null);
      this.#table();
      this.#parts.plot.setAttribute("aria-label", `${data.title} over ${data.xLabel}. ${this.#spoken(null)}. Use the arrow keys to read its points.`);
    }

    /** All lines over one axis. What is missing in a run stays a gap; what only another run has is none. */
    #joined(log) {
      const tables = [];
      const shown = (values) => (log ? values.map((value) => (value > 0 ? value : null)) : values);
      this.#mains = [];
      for (const line of this.#data.lines) {
        if (line.low) tables.push([line.x, shown(line.low)], [line.x, shown(line.high)]);
        if (line.mean) tables.push([line.x, shown(line.mean)]);
        tables.push([line.x, shown(line.y)]);
        this.#mains.push(tables.length);
      }
      return tables.length ? window.uPlot.join(tables) : [[]];
    }

    #options(log) {
      const data = this.#data;
      const [ink, grid] = [colour("--soft"), colour("--grid")];
      const font = "12px system-ui, sans-serif";
      const series = [{}];
      const bands = [];
      for (const line of data.lines) {
        const own = colour(line.colour);
        const none = { stroke: "transparent", points: { show: false } };
        if (line.low) {
          series.push({ ...none }, { ...none });
          bands.push({ series: [series.length - 1, series.length - 2], fill: faint(own, 0.14) });
        }
        if (line.mean) series.push({ stroke: faint(own, 0.75), width: 1, dash: [3, 3], points: { show: false } });
        series.push({ stroke: own, width: 2, dash: line.dash, points: { show: line.x.length < 2, size: 6, fill: own } });
      }
      const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
      const step = (ticks) => (ticks.length > 1 ? ticks[1] - ticks[0] : ticks[0]);
      return {
        width: this.#width(), height: this.#height(), series, bands,
        legend: { show: false },
        scales: {
          x: { time: data.xUnit === "time", range: (plot) => this.#data.zoom || ends(plot) },
          y: log ? { distr: 3 } : { range: (plot, low, high) => room(low, high) },
        },
        axes: [
          { ...axis, size: 30, ...(data.xLabel === "rounds" || data.xUnit ? {} : { label: data.xLabel, labelSize: 18, labelFont: font }), ...(data.xLabel === "rounds" ? { incrs: WHOLE } : {}), ...(data.xUnit === "time" ? { space: 70, values: TIMES } : { values: (plot, ticks) => ticks.map((value) => tick("number", value, step(ticks))) }) },
          { ...axis, size: data.unit === "seconds" ? 66 : 58, values: (plot, ticks) => ticks.map((value) => tick(data.unit, value, log ? value : step(ticks))) },
        ],
        cursor: {
          drag: { x: true, y: false, setScale: false, dist: 6 },
          points: { size: 7 },
          sync: { key: data.sync, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
          bind: { dblclick: () => () => { this.#zoom(null); return null; } },
        },
        hooks: {
          setCursor: [(plot) => this.#values(plot.cursor.left >= 0 ? plot.cursor.idx : null)],
          setSelect: [(plot) => {
            const { left, width } = plot.select;
            if (width < 6) return;
            const ends = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
            plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            this.#zoom(ends);
          }],
        },
      };
    }

    #zoom(detail) { this.dispatchEvent(new CustomEvent("zoom", { detail, bubbles: true })); }
    #width() { return Math.max(200, this.#parts.plot.clientWidth); }
    #height() { return this.classList.contains("wide") ? HEIGHTS.wide : HEIGHTS.small; }
    #resize() { this.#plot?.setSize({ width: this.#width(), height: this.#height() }); }

    /** What the lines are at an index, or at their ends. */
    #at(index) {
      const columns = this.#plot ? this.#plot.data : this.#joined();
      return this.#data.lines.map((line, i) => {
        const values = columns[this.#mains[i]] || [];
        return { line, value: until(values, index ?? values.length - 1) };
      });
    }
    #values(index) {
      if (!this.#data) return;
      const { unit, xLabel, xUnit } = this.#data;
      const x = index == null ? null : this.#plot?.data[0][index];
      this.#parts.at.textContent = x == null ? "" : `${xUnit ? "" : `${xLabel.replace(/^rounds$/, "round")} `}${shownX(this.#data, x)}`;
      this.#parts.legend.replaceChildren(...this.#at(index).map(({ line, value }) => el("li", {},
        el("i", { class: "key", own: `var(${line.colour})` }), el("span", { title: line.name }, line.name), el("b", {}, shown(unit, value)))));
    }
    #spoken(index) {
      return this.#at(index).map(({ line, value }) => `${line.name}: ${shown(this.#data.unit, value)}`).join("; ");
    }

    #key(event) {
      const xs = this.#plot?.data[0];
      if (!xs?.length) return;
      const here = this.#plot.cursor.left >= 0 ? this.#plot.cursor.idx : null;
      const steps = { ArrowRight: here == null ? 0 : here + 1, ArrowLeft: here == null ? xs.length - 1 : here - 1, Home: 0, End: xs.length - 1 };
      if (event.key === "Escape") return this.#zoom(null);
      if (!(event.key in steps)) return;
      event.preventDefault();
      const index = Math.min(xs.length - 1, Math.max(0, steps[event.key]));
      this.#plot.setCursor({ left: this.#plot.valToPos(xs[index], "x"), top: 8 });
      announce(`${this.#parts.at.textContent}: ${this.#spoken(index)}`);
    }
    #leave() { this.#plot?.setCursor({ left: -10, top: -10 }); }

    #table() {
      const { numbers } = this.#parts;
      if (numbers.hidden || !this.#plot) return;
      const { unit, lines, xLabel, title } = this.#data;
      const [xs, ...columns] = this.#plot.data;
      const every = Math.max(1, Math.ceil(xs.length / MOST_ROWS));
      const rows = xs.map((x, i) => ({ id: x, i })).filter((row) => row.i % every === 0 || row.i === xs.length - 1);
      let table = numbers.firstElementChild;
      if (!table) numbers.append((table = el("kh-table")));
      table.data = {
        caption: every > 1 ? `${title}: every ${every}th point` : null,
        columns: [{ key: "x", label: xLabel, number: true, value: (row) => shownX(this.#data, row.id) },
          ...lines.map((line, k) => ({ key: line.name, label: line.name, number: true, value: (row) => shown(unit, columns[this.#mains[k] - 1][row.i]) }))],
        rows,
      };
    }
  }
  customElements.define("kh-chart", Chart);
})();

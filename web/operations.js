// What only operators see of a task: exact counts and times of its devices, marked as outside the guarantee.
//
// `data` of <kh-operations> is what GET api/dashboard/NAME/operations answers, with `failed` of the task, its `name` and the `zoom` of its
// page. Times are in seconds since 1970.
"use strict";
(() => {
  const { el, shown, keepingFocus } = window.Keyhush;
  /** What the signs of a session say, in the order in which they come (Bonawitz et al. 2019, table 1). */
  const SIGNS = [
    ["-", "the device checked in and was given the round"], ["v", "it downloaded the plan and the model"], ["[", "training began"], ["]", "training ended"],
    ["+", "its report began to arrive"], ["^", "its report was accepted"], ["#", "its report was not needed any more, or came too late"],
    ["!", "nothing more was heard of it"], ["*", "what it sent was not a valid report"],
  ];
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const outcome = (attempt) => {
    if (attempt.released) return el("span", { class: "state", "data-state": "over" }, "released");
    if (attempt.open) return el("span", { class: "state", "data-state": "running" }, "in progress");
    return [el("span", { class: "state", "data-state": "stopped" }, "failed"), attempt.why && el("small", {}, attempt.why)];
  };
  const session = ({ signs, words, devices }) => el("span", { class: "session", title: words }, el("code", {}, signs), el("b", {}, shown("number", devices)));

  class Operations extends HTMLElement {
    #charts = new Map();
    #parts = null;

    #build() {
      const part = (tag, attributes) => el(tag, attributes);
      this.#parts = { now: part("kh-tiles"), seen: part("kh-table"), grid: part("div", { class: "grid" }), attempts: part("kh-table", { class: "attempts" }), failed: part("div") };
      const { now, seen, grid, attempts, failed } = this.#parts;
      this.append(
        el("div", { class: "head" }, el("h3", { id: "part-operations", class: "big" }, "Operations"), el("span", { class: "mark" }, "exact, for operators, outside the guarantee")),
        el("p", { class: "lead" }, "Who took part is not protected, only what was typed. These are exact counts and times, without noise: do not publish them. They start again with the server."),
        now, grid,
        el("h4", {}, "Last attempts at rounds"), attempts,
        el("details", { class: "legend" }, el("summary", { "data-key": "signs" }, "How to read session shapes"),
          el("p", {}, "Each sign is a step that the server saw or can conclude, from left to right. ", el("code", {}, "-v[]+^"), " is a device that did everything."),
          el("dl", {}, SIGNS.flatMap(([sign, means]) => [el("dt", {}, el("code", {}, sign)), el("dd", {}, means)]))),
        failed, el("h4", {}, "Observed participation so far"), seen);
    }

    set data({ outside_the_guarantee: exact, failed, zoom }) {
      if (!this.#parts) this.#build();
      const { now, grid, attempts, seen } = this.#parts;
      const open = exact.attempts.find((attempt) => attempt.open);
      this.#set(now, [
        { name: "Enrolled devices", value: shown("number", exact.enrolled), note: "on this server, for all of its tasks" },
        { name: "Devices asked", value: exact.asked == null ? "\u2013" : shown("number", exact.asked), note: `different devices so far, of a declared population of ${shown("number", exact.population)}` },
        { name: "Waiting devices", value: exact.waiting == null ? "\u2013" : shown("number", exact.waiting), note: "checked in now, and could be given a round" },
        { name: "Reports", value: open ? `${shown("number", open.reported)} / ${shown("number", open.goal)}` : "\u2013", note: open ? `of the open round; ${shown("number", open.asked)} devices have it, ${shown("number", open.dropped)} dropped out` : "no round is open" },
      ]);
      const ended = exact.attempts.filter((attempt) => !attempt.open);
      const over = (key) => ({ x: ended.map((attempt) => attempt.ended), y: ended.map((attempt) => attempt[key]) });
      this.#chart(grid, [
        ["arrivals", "Check-ins", "Devices that asked for work, per minute.", "number", [{ name: "check-ins per minute", colour: "--run-0", x: exact.check_ins.times, y: exact.check_ins.counts }]],
        ["reports", "Devices of each attempt", "How many were asked, how many reports are in the sum, and how many dropped out.", "number", [
          // Mostly both are equal: the dashed line lets the other show through.
          { name: "reports", colour: "--run-2", ...over("reported") }, { name: "asked", colour: "--run-6", dash: [5, 5], ...over("asked") }, { name: "dropped out", colour: "--run-7", ...over("dropped") }]],
        ["durations", "Time per attempt", "From the first device that was given it to its end.", "seconds", [{ name: "duration", colour: "--run-4", ...over("seconds") }]],
      ], zoom);
      attempts.data = {
        rows: [...exact.attempts].reverse(), key: (row) => `${row.what} ${row.attempt} ${row.began}`, named: 1,
        caption: exact.attempts.length ? null : "No attempt since the server was started.",
        columns: [
          { key: "when", label: "Began", class: "when", cell: (row) => clock(row.began) },
          { key: "what", label: "Of", class: "what", cell: (row) => [row.what, row.attempt > 1 && el("small", {}, `attempt ${row.attempt}`)] },
          { key: "outcome", label: "Outcome", class: "outcome", cell: outcome },
          { key: "asked", label: "Asked", number: true, class: "minor", value: (row) => shown("number", row.asked) },
          { key: "reported", label: "Reports", number: true, class: "minor", cell: (row) => `${shown("number", row.reported)} of ${shown("number", row.goal)}` },
          { key: "dropped", label: "Dropped out", number: true, class: "minor", value: (row) => shown("number", row.dropped) },
          { key: "took", label: "Took", number: true, class: "took", cell: (row) => (row.seconds == null ? "\u2013" : shown("seconds", row.seconds)) },
          { key: "shapes", label: "Session shapes, with devices", class: "shapes", cell: (row) => row.shapes.map(session) },
        ],
      };
      this.#failures(failed);
      const rows = exact.observed.flatMap((row) => [
        { id: `${row.stream} times`, what: `In ${row.title}, the most times of one device`, seen: shown("number", row.max_participations) },
        { id: `${row.stream} between`, what: "and the fewest rounds between two times of one device", seen: row.min_separation == null ? "no device twice" : shown("number", row.min_separation) },
      ]);
      seen.data = { rows, caption: rows.length ? null : "Nothing is on record yet.", columns: [
        { key: "what", label: "Of the participations on record", value: (row) => row.what }, { key: "seen", label: "Observed", number: true, value: (row) => row.seen }] };
    }

    #set(tiles, data) {
      const mark = JSON.stringify(data);
      if (tiles.dataset.mark === mark) return;
      tiles.dataset.mark = mark;
      tiles.data = data;
    }

    #chart(grid, all, zoom) {
      const wanted = all.filter(([, , , , lines]) => lines.some((line) => line.x.length > 1));
      for (const [key, title, note, unit, lines] of wanted) {
        if (!this.#charts.has(key)) this.#charts.set(key, el("kh-chart", { "data-chart": key }));
        this.#charts.get(key).data = { title, note, unit, lines, xLabel: "time", xUnit: "time", sync: "time", zoom: zoom && zoom[0] > 1e8 ? zoom : null };
      }
      const mark = wanted.map(([key]) => key).join(" ");
      if (grid.dataset.mark === mark) return;
      grid.dataset.mark = mark;
      grid.replaceChildren(...wanted.map(([key]) => this.#charts.get(key)));
    }

    /** Why rounds failed, as the ledger has it: also before the server was started. */
    #failures(failed) {
      const place = this.#parts.failed;
      const mark = JSON.stringify(failed);
      if (place.dataset.mark === mark) return;
      place.dataset.mark = mark;
      keepingFocus(place, () => place.replaceChildren(...(failed.length ? [el("h4", {}, "Rounds that failed"),
        el("p", { class: "soft" }, "As the ledger has them. Everybody who was asked counts as having taken part."),
        el("ul", { class: "failed" }, [...failed].reverse().map(({ why }) => el("li", {}, why)))] : [])));
    }
  }
  customElements.define("kh-operations", Operations);
})();

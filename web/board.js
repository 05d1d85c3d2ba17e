// The page of all runs: which are shown, and how. The view is stored in the address, so that a link shows the same.
"use strict";
(() => {
  const { el, shown, small, keepingFocus, markdown, priceOf, words, prompt, some } = window.Keyhush;
  const at = (id) => document.getElementById(id);
  /** Runs that are selected until somebody chooses some. */
  const FIRST = 4;
  const COLOURS = 8;
  /** Settings that get a column in the list. */
  const MOST_COLUMNS = 3;
  /** Evaluations whose suggestions are shown side by side. */
  const MOST_EVALUATIONS = 6;
  const DASHES = [undefined, [7, 4], [2, 3]];
  const GROUPS = [
    ["quality", "Model quality", ""],
    ["privacy", "Privacy and clipping", ""],
    ["training", "Training", "exact values of simulated users; runs with secret noise have none"],
  ];
  const STATES = { running: "running", finished: "finished", stopped: "stopped", unreadable: "cannot be read" };

  // ---- data and view

  const runs = new Map();
  const details = new Map();
  let charts = [];
  let source = null;

  const view = { q: "", sort: "-started", runs: null, x: "rounds", mean: false, zoom: null, all: false, round: null };

  const readAddress = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    const zoom = (asked.get("zoom") || "").split("~").map(Number);
    Object.assign(view, {
      q: asked.get("q") || "",
      sort: asked.get("sort") || "-started",
      runs: asked.has("run") ? asked.getAll("run").filter(Boolean) : null,
      x: asked.get("x") === "epsilon" ? "epsilon" : "rounds",
      mean: asked.has("mean"),
      zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null,
      all: asked.has("all"),
      round: asked.has("round") ? Number(asked.get("round")) : null,
    });
  };
  const writeAddress = () => {
    const said = new URLSearchParams();
    if (view.q) said.set("q", view.q);
    if (view.sort !== "-started") said.set("sort", view.sort);
    if (view.runs) (view.runs.length ? view.runs : [""]).forEach((id) => said.append("run", id));
    if (view.x !== "rounds") said.set("x", view.x);
    if (view.mean) said.set("mean", "1");
    if (view.zoom) said.set("zoom", view.zoom.map((end) => Number(end.toPrecision(6))).join("~"));
    if (view.all) said.set("all", "1");
    if (view.round != null) said.set("round", view.round);
    const hash = said.toString().replaceAll("%2F", "/");
    history.replaceState(null, "", hash ? `#${hash}` : "#");
  };
  const change = (what) => {
    Object.assign(view, what);
    writeAddress();
    draw();
  };

  const newest = () => [...runs.values()].sort((a, b) => b.started - a.started || (a.id < b.id ? 1 : -1));
  const readable = () => newest().filter((run) => run.state !== "unreadable");
  const selected = () => {
    if (view.runs) return view.runs.filter((id) => runs.get(id)?.numbers);
    return readable().slice(0, FIRST).map((run) => run.id);
  };
  const found = () => {
    const words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => [run.id, run.state, run.simulated ? "simulated" : "secret", run.ended || "",
      ...Object.entries(run.settings || {}).map(([key, value]) => `${key}=${value}`)].join(" ").toLowerCase();
    return newest().filter((run) => words.every((word) => text(run).includes(word)));
  };

  /** Colours follow the age of runs, so that a run keeps its own; if two would share one, the later takes the next. */
  const looks = (ids) => {
    const order = new Map(newest().reverse().map((run, i) => [run.id, i]));
    const taken = new Map();
    for (const id of [...ids].sort((a, b) => order.get(a) - order.get(b))) {
      let slot = order.get(id) % COLOURS;
      const used = new Set(taken.values());
      while (used.size < COLOURS && used.has(slot)) slot = (slot + 1) % COLOURS;
      const round = [...taken.values()].filter((other) => other === slot).length;
      taken.set(id, slot);
      looksOf.set(id, { colour: `--run-${slot}`, dash: DASHES[round % DASHES.length] });
    }
  };
  const looksOf = new Map();
  const own = (id) => looksOf.get(id)?.colour || "--soft";

  const chartOf = (key) => charts.find((chart) => chart.key === key);
  const toggle = (id) => {
    const now = selected();
    change({ runs: now.includes(id) ? now.filter((other) => other !== id) : [...now, id] });
  };

  // ---- the list

  const differing = (all) => {
    const list = all.filter((run) => run.settings);
    const values = new Map();
    for (const run of list) for (const key of Object.keys(run.settings)) values.set(key, null);
    const keys = [...values.keys()].map((key) => [key, new Set(list.map((run) => run.settings[key])).size]);
    return keys.filter(([, many]) => many > 1).sort((a, b) => a[1] - b[1] || (a[0] < b[0] ? -1 : 1)).map(([key]) => key);
  };

  /** Settings with a column in the list: those in which the selected runs differ, or else all runs. */
  const columnKeys = (list) => {
    const of = (some) => differing(some).filter((key) => !key.endsWith("seed")).slice(0, MOST_COLUMNS);
    const chosen = of(selected().map((id) => runs.get(id)));
    return chosen.length ? chosen : of(list);
  };
  /** The last part of a long key, unless another key ends alike: `noise_multiplier`, but `data.kind`. */
  const shortKey = (key, list) => {
    const last = key.split(".").at(-1);
    const alike = new Set(list.flatMap((run) => Object.keys(run.settings || {})).filter((other) => other.split(".").at(-1) === last));
    return alike.size > 1 || key.length <= 12 ? key : last;
  };

  const stateOf = (run) => el("span", { class: "state", "data-state": run.state, title: run.problem || run.ended || "" },
    STATES[run.state] || run.state);
  const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

  const columns = (list) => {
    const chosen = new Set(selected());
    const keys = [...new Set(list.flatMap((run) => (run.numbers || []).map((number) => number.key)))];
    const value = (run, key) => run.numbers?.find((number) => number.key === key)?.value;
    return [
      { key: "pick", label: el("span", { class: "hidden" }, "Selected"), class: "pick", cell: (run) => run.numbers && el("label", {},
        el("span", { class: "hidden" }, `Select ${run.id}`),
        el("input", { type: "checkbox", checked: chosen.has(run.id), "data-key": `pick ${run.id}`, own: `var(${own(run.id)})`, onchange: () => toggle(run.id) })) },
      { key: "name", label: "Run", class: "name", value: (run) => run.id, cell: (run) => el("button", {
        type: "button", title: run.problem || "Show this run alone", "data-key": `only ${run.id}`, onclick: () => change({ runs: [run.id] }) }, run.id) },
      { key: "state", label: "State", class: "of-state", value: (run) => run.state, cell: stateOf },
      { key: "rounds", label: "Rounds", number: true, class: "of-rounds", value: (run) => run.rounds, cell: (run) => run.numbers && [
        `${shown("number", run.rounds)} / ${shown("number", run.planned)}`,
        el("span", { class: "progress", "aria-hidden": "true" }, el("i", { own: `${Math.min(100, (100 * run.rounds) / (run.planned || 1))}%` }))] },
      ...keys.map((key, i) => ({
        key, label: chartOf(key)?.title || key, number: true, class: i ? "minor" : "of-headline", value: (run) => value(run, key),
        cell: (run) => shown(chartOf(key)?.unit, value(run, key)) })),
      { key: "small", label: "", class: "minor", cell: (run) => run.small && small(run.small, `var(${chosen.has(run.id) ? own(run.id) : "--soft"})`) },
      { key: "epsilon", label: "Epsilon", number: true, class: "price", value: (run) => run.price && (run.price.epsilon ?? Infinity),
        cell: (run) => run.price && priceOf(run.price.words) },
      { key: "started", label: "Started", number: true, class: "minor", value: (run) => run.started,
        cell: (run) => run.numbers && (run.simulated ? day(run.started) : day(run.started).slice(0, 10)) },
      ...columnKeys(list).map((key) => ({
        key: `set ${key}`, label: el("span", { title: key }, shortKey(key, list)), class: "minor", value: (run) => run.settings?.[key], cell: (run) => run.settings?.[key] ?? "" })),
    ];
  };

  const drawList = () => {
    const list = found();
    const running = newest().filter((run) => run.state === "running").length;
    at("count").textContent = [`${runs.size} run${runs.size === 1 ? "" : "s"}`, running && `${running} running`,
      view.q && `${list.length} found`].filter(Boolean).join(" \u00b7 ");
    if (at("search").value !== view.q && document.activeElement !== at("search")) at("search").value = view.q;
    const chosen = new Set(selected());
    at("runs").data = {
      columns: columns(list), rows: list, sort: view.sort, named: 1, selected: (run) => chosen.has(run.id),
      caption: list.length ? null : runs.size ? "No run matches this search." : "No runs yet: they appear here as soon as one starts.",
    };
  };

  // ---- one run

  const drawOne = (ids) => {
    const [id] = ids;
    const detail = details.get(id)?.data;
    at("one").hidden = ids.length !== 1 || !detail;
    if (at("one").hidden) return;
    const mark = JSON.stringify([id, detail.sentence, detail.notes, detail.tiles]);
    if (at("one").dataset.mark === mark) return;
    at("one").dataset.mark = mark;
    const tiles = el("kh-tiles");
    tiles.data = detail.tiles;
    at("one").replaceChildren(el("div", { class: "head" }, el("h2", {}, id)),
      el("blockquote", { own: `var(${own(id)})` }, detail.sentence, detail.notes.length > 0 && el("ul", { class: "notes" }, detail.notes.map((note) => el("li", {}, note)))),
      tiles);
  };

  // ---- curves

  const mean5 = (values) => values.map((value, i) => {
    const near = values.slice(Math.max(0, i - 4), i + 1).filter((other) => other != null);
    return value == null || !near.length ? null : near.reduce((a, b) => a + b, 0) / near.length;
  });
  /** The same points over the epsilon that was spent by then. */
  const overEpsilon = (detail, curve) => {
    const spent = Object.entries(detail.curves).find(([key]) => ["epsilon", "epsilon_so_far", "epsilon_if_secret"].includes(key))?.[1];
    if (!spent) return null;
    const price = new Map(spent.rounds.map((round, i) => [round, spent.values[i]]));
    const points = new Map(curve.rounds.map((round, i) => [price.get(round), curve.values[i]]).filter(([x]) => x != null));
    return { x: [...points.keys()], y: [...points.values()] };
  };
  const lineOf = (id, detail, chart) => {
    const curve = detail.curves[chart.key];
    if (!curve) return null;
    const over = view.x === "epsilon" && chart.group === "quality" ? overEpsilon(detail, curve) : { x: curve.rounds, y: curve.values };
    if (!over) return null;
    const edge = (i) => chart.band && view.x === "rounds" && detail.curves[chart.band[i]]?.values;
    return { name: id, ...looksOf.get(id), ...over, low: edge(0), high: edge(1), mean: view.mean && chart.better ? mean5(over.y) : null };
  };
  const constant = (line) => line.y.length > 1 && line.y.every((value) => value === line.y[0]);

  const throughout = (chart, lines) => {
    const all = lines.map((line) => shown(chart.unit, line.y[0]));
    return new Set(all).size === 1 ? all[0] : lines.map((line, i) => `${all[i]} (${line.name})`).join(", ");
  };

  const places = new Map();
  const drawCurves = (ids) => {
    const known = ids.map((id) => [id, details.get(id)?.data]).filter(([, detail]) => detail);
    at("x").value = view.x;
    at("mean").checked = view.mean;
    for (const [name, end] of [["from", 0], ["to", 1]]) {
      if (document.activeElement !== at(name)) at(name).value = view.zoom && view.x === "rounds" ? Math.round(view.zoom[end]) : "";
      at(name).disabled = view.x !== "rounds";
    }
    const meanings = new Set(known.map(([, detail]) => detail.epsilon_means));
    const root = at("charts");
    if (!known.length) {
      places.clear();
      const words = ids.length ? "Reading the run \u2026" : runs.size ? "Select runs in the list to see their curves." : "Start one with: keyhush train";
      root.replaceChildren(el("p", { class: "empty" }, words));
      return;
    }
    const sections = [];
    for (const [group, title, mark] of GROUPS) {
      const constants = [];
      const shownCharts = [];
      for (const chart of charts.filter((one) => one.group === group)) {
        const lines = known.map(([id, detail]) => lineOf(id, detail, chart)).filter((line) => line && line.y.some((value) => value != null));
        if (!lines.length) continue;
        if (lines.every(constant)) { constants.push([chart, lines]); continue; }
        const epsilons = view.x === "epsilon" && group === "quality";
        const xLabel = epsilons ? (meanings.size === 1 ? [...meanings][0] : "epsilon (its meaning differs between runs)") : "rounds";
        const place = places.get(chart.key) || el("kh-chart", { "data-chart": chart.key });
        places.set(chart.key, place);
        // What is projected to a larger cohort is some powers of ten below.
        const log = chart.log || (chart.unit === "epsilon" && known.some(([, detail]) => detail.curves.projected_epsilon));
        place.data = { ...chart, log, lines, xLabel, sync: epsilons ? "epsilon" : "rounds", zoom: epsilons === (view.x === "epsilon") ? view.zoom : null };
        shownCharts.push(place);
      }
      if (!shownCharts.length && !constants.length) continue;
      sections.push({ group, title, mark, shownCharts, constants });
    }
    // The same elements stay where they are, so that a chart that is looked at is not disturbed.
    const plan = JSON.stringify(sections.map(({ group, shownCharts }) => [group, shownCharts.map((place) => place.dataset.chart)]));
    if (root.dataset.plan !== plan || !root.querySelector(".grid")) {
      root.dataset.plan = plan;
      root.replaceChildren(...sections.flatMap(({ group, title, mark, shownCharts }) => [
        el("div", { class: "group" }, el("h3", {}, title), mark && el("span", { class: "mark" }, mark)),
        el("div", { class: "grid" }, shownCharts), el("div", { class: "constants", "data-group": group })]));
    }
    for (const { group, constants } of sections) {
      root.querySelector(`[data-group="${group}"]`).replaceChildren(...constants.map(([chart, lines]) => el("span", {}, `${chart.title} (constant): `,
        el("b", {}, throughout(chart, lines)))));
    }
    for (const [key, place] of places) if (!place.isConnected) places.delete(key);
  };

  // ---- suggestions of models

  const nearest = (samples, round) => samples.reduce((best, line) => (line.round <= round ? line : best), samples[0]);
  const drawSamples = (ids) => {
    const known = ids.map((id) => [id, details.get(id)?.data?.samples]).filter(([, samples]) => samples?.length);
    const section = at("samples");
    section.hidden = !known.length;
    if (section.hidden) return;
    if (!section.firstElementChild) {
      section.append(el("div", { class: "head" }, el("h2", { id: "samples-title" }, "What the model suggests"),
        el("label", { class: "slider" }, el("span", {}), el("input", { type: "range", "aria-label": "Round", "data-key": "round",
          oninput: (event) => change({ round: Number(event.currentTarget.value) }) }))),
      el("kh-table"));
    }
    const [label, table] = [section.querySelector(".slider"), section.querySelector("kh-table")];
    const prompts = [...new Set(known.flatMap(([, samples]) => samples.at(-1).samples.map((sample) => sample.prompt)))];
    const of = (line, text) => line?.samples.find((sample) => sample.prompt === text);
    const first = { key: "prompt", label: "After typing", cell: (row) => prompt(row.id) };
    const rows = prompts.map((id) => ({ id }));
    label.hidden = known.length === 1;
    if (known.length === 1) {
      const lines = some(known[0][1], MOST_EVALUATIONS);
      table.data = { rows, columns: [first, ...lines.map((line, i) => ({ key: `round ${line.round}`, label: `round ${shown("number", line.round)}`,
        cell: (row) => of(line, row.id) && words(of(line, row.id), i > 0 && of(lines[i - 1], row.id)) }))] };
      return;
    }
    const last = Math.max(...known.map(([, samples]) => samples.at(-1).round));
    const round = view.round == null ? last : Math.min(last, view.round);
    const [text, slider] = label.children;
    Object.assign(slider, { min: 0, max: last, step: 1 });
    if (document.activeElement !== slider) slider.value = round;
    text.textContent = `after round ${shown("number", round)}`;
    table.data = { rows, columns: [first, ...known.map(([id, samples]) => ({ key: id,
      label: el("span", { class: "of-run" }, el("i", { class: "key", own: `var(${own(id)})` }), id),
      cell: (row) => { const sample = of(nearest(samples, round), row.id); return sample ? words(sample) : ""; } }))] };
  };

  // ---- settings and statements

  const drawSettings = (ids) => {
    const list = ids.map((id) => runs.get(id)).filter((run) => run?.settings);
    const section = at("settings");
    section.hidden = !list.length;
    if (section.hidden) return;
    const differ = new Set(differing(list));
    const every = view.all || list.length === 1;
    if (!section.firstElementChild) {
      section.append(el("div", { class: "head" }, el("h2", { id: "settings-title" }, "Settings"), el("span", { class: "grow" }),
        el("label", { class: "check" }, el("input", { id: "same", type: "checkbox", onchange: (event) => change({ all: event.currentTarget.checked }) }), "also show equal settings")),
      el("kh-table"));
    }
    section.querySelector(".check").hidden = list.length === 1;
    at("same").checked = view.all;
    const keys = [...new Set(list.flatMap((run) => Object.keys(run.settings)))].filter((key) => every || differ.has(key)).sort();
    section.querySelector("kh-table").data = {
      caption: keys.length ? null : "These runs have the same settings.",
      columns: [{ key: "key", label: "Key", cell: (row) => el("code", { class: differ.has(row.id) && list.length > 1 ? "differs" : null }, row.id) },
        ...list.map((run) => ({ key: run.id, label: el("span", { class: "of-run" }, el("i", { class: "key", own: `var(${own(run.id)})` }), run.id),
          cell: (row) => el("code", { class: differ.has(row.id) && list.length > 1 ? "differs" : null }, run.settings[row.id] ?? "\u2013") }))],
      rows: keys.map((id) => ({ id })),
    };
  };

  const drawStatements = (ids) => {
    const known = ids.map((id) => [id, details.get(id)?.data?.statement]).filter(([, statement]) => statement);
    const section = at("statements");
    section.hidden = !known.length;
    const mark = JSON.stringify(known);
    if (section.hidden || section.dataset.mark === mark) return;
    section.dataset.mark = mark;
    const open = new Set([...section.querySelectorAll("details[open]")].map((one) => one.dataset.run));
    keepingFocus(section, () => section.replaceChildren(el("div", { class: "head" }, el("h2", { id: "statements-title" }, "Privacy statements")),
      ...known.map(([id, statement]) => el("details", { class: "statement", "data-run": id, open: open.has(id) },
        el("summary", { "data-key": `statement ${id}` }, el("span", { class: "of-run" }, el("i", { class: "key", own: `var(${own(id)})` }), id)), markdown(statement)))));
  };

  // ---- all of it

  const draw = () => {
    const ids = selected();
    looksOf.clear();
    looks(ids);
    drawList();
    drawOne(ids);
    drawCurves(ids);
    drawSamples(ids);
    drawSettings(ids);
    drawStatements(ids);
    load(ids);
  };

  /** Fetches selected runs that are not loaded or have changed. */
  const load = (ids) => {
    for (const id of ids) {
      const [run, known] = [runs.get(id), details.get(id)];
      if (known && (known.version === run.version || known.loading)) continue;
      details.set(id, { ...known, version: run.version, loading: true });
      source.detail(id).catch(() => null).then((data) => {
        details.set(id, { version: data ? run.version : null, loading: false, data: data || known?.data });
        if (data) draw();
      });
    }
  };

  const SAID = {
    live: () => "live", waiting: () => "waiting for the server \u2026",
    copy: (made) => `a copy of ${day(made)} UTC`,
  };
  const start = () => {
    readAddress();
    const named = () => { at("theme").textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"; };
    named();
    window.addEventListener("keyhush-theme", named);
    at("theme").addEventListener("click", () => window.Keyhush.toggleTheme());
    at("search").value = view.q;
    at("search").addEventListener("input", (event) => change({ q: event.currentTarget.value }));
    at("runs").addEventListener("sort", (event) => change({ sort: event.detail }));
    at("all").addEventListener("click", () => change({ runs: found().filter((run) => run.numbers).map((run) => run.id) }));
    at("none").addEventListener("click", () => change({ runs: [] }));
    at("x").addEventListener("change", (event) => change({ x: event.currentTarget.value, zoom: null }));
    at("mean").addEventListener("change", (event) => change({ mean: event.currentTarget.checked }));
    at("whole").addEventListener("click", () => change({ zoom: null }));
    at("charts").addEventListener("zoom", (event) => change({ zoom: event.detail }));
    const ends = () => {
      const [from, to] = [at("from").valueAsNumber, at("to").valueAsNumber];
      const last = Math.max(1, ...selected().map((id) => runs.get(id).rounds));
      const zoom = [Number.isNaN(from) ? 0 : from, Number.isNaN(to) ? last : to];
      change({ zoom: (Number.isNaN(from) && Number.isNaN(to)) || zoom[0] >= zoom[1] ? null : zoom });
    };
    ["from", "to"].forEach((name) => at(name).addEventListener("change", ends));
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      at("curves").focus();
    });
    window.addEventListener("hashchange", () => { readAddress(); draw(); });
    window.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || /INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) return;
      event.preventDefault();
      at("search").focus();
    });
    source = window.Keyhush.source({
      onState: (state, made) => {
        at("live").dataset.state = state;
        at("live").textContent = SAID[state](made);
      },
      onRuns: (told) => {
        // A server that was started again counts its versions from 0: what is shown stays until it is read again.
        if (told.reset) { runs.clear(); details.forEach((known) => { known.version = null; }); }
        if (told.charts) charts = told.charts;
        told.runs.forEach((run) => runs.set(run.id, run));
        const ids = new Set(told.ids);
        for (const id of [...runs.keys()]) if (!ids.has(id)) { runs.delete(id); details.delete(id); }
        // A copy calls this before it has given its source back.
        queueMicrotask(draw);
      },
    });
  };
  start();
})();

// The dashboard of a server: its tasks, and one of them with all that may be shown of it.
"use strict";
(() => {
  const { el, shown, small, keepingFocus, markdown, priceOf, words, prompt, some, announce } = window.Keyhush;
  const at = (id) => document.getElementById(id);
  /** Evaluations whose suggestions are shown side by side. */
  const MOST_EVALUATIONS = 5;
  const STATES = {
    running: "running", pausing: "pausing", paused: "paused", stopping: "stopping", over: "finished", broken: "cannot continue",
    not_served: "not running", refused: "refused", unreadable: "cannot be read",
  };
  const ROLES = { viewer: "viewer", operator: "operator", officer: "privacy officer" };
  const ORDERS = {
    pause: ["Pause", "Pause this task?", "No new round is started. Devices that are in a round now complete it. You can resume the task at any time."],
    resume: ["Resume", "Resume this task?", "Devices are asked to take part again, from the next round on."],
    stop: ["Stop", "Stop this task for good?",
      "The round in progress is cancelled, the ledger is closed, and the keys of the noise are destroyed. The last released model and its statement stay. The guarantee remains that of the whole plan. This cannot be undone."],
  };

  const tasks = new Map();
  const details = new Map();
  let charts = [];
  let role = "viewer";
  let server = null;
  let about = null;
  /** "waiting" for the first answer, "in", or "out". */
  let signed = "waiting";
  const operates = () => role !== "viewer";

  // ---- the view, which is part of the address

  const view = { task: null, zoom: null, sort: "name" };
  const readAddress = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    const zoom = (asked.get("zoom") || "").split("~").map(Number);
    Object.assign(view, {
      task: asked.get("task"), sort: asked.get("sort") || "name",
      zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null,
    });
  };
  const address = (what) => {
    const { task, zoom, sort } = { ...view, ...what };
    const said = new URLSearchParams();
    if (task != null) said.set("task", task);
    if (zoom) said.set("zoom", zoom.map((end) => Number(end.toPrecision(6))).join("~"));
    if (sort !== "name") said.set("sort", sort);
    return `#${said}`;
  };
  const change = (what) => {
    Object.assign(view, what);
    history.replaceState(null, "", address({}));
    draw();
  };

  // ---- the list

  const stateOf = (task) => el("span", { class: "state", "data-state": task.state, title: task.why || task.problem || "" }, STATES[task.state] || task.state);
  const progress = (task) => [`${shown("number", task.rounds)} / ${shown("number", task.planned)}`,
    el("span", { class: "progress", "aria-hidden": "true" }, el("i", { own: `${Math.min(100, (100 * task.rounds) / (task.planned || 1))}%` }))];
  const chartOf = (key) => charts.find((chart) => chart.key === key);

  const columns = (list) => {
    const keys = [...new Set(list.flatMap((task) => task.numbers.slice(0, 1).map((number) => number.key)))];
    const value = (task, key) => task.numbers.find((number) => number.key === key)?.value;
    return [
      { key: "name", label: "Task", class: "name", value: (task) => task.name,
        cell: (task) => el("a", { href: address({ task: task.name, zoom: null }), "data-key": `open ${task.name}` }, task.name) },
      { key: "state", label: "State", class: "of-state", value: (task) => STATES[task.state], cell: stateOf },
      { key: "rounds", label: "Rounds", number: true, class: "of-rounds", value: (task) => task.rounds, cell: (task) => (task.planned ? progress(task) : "\u2013") },
      ...keys.map((key) => ({ key, label: chartOf(key)?.title || key, number: true, class: "of-headline", value: (task) => value(task, key),
        cell: (task) => shown(chartOf(key)?.unit, value(task, key)) })),
      { key: "small", label: "", class: "minor", cell: (task) => small(task.small, "var(--run-0)") },
      { key: "epsilon", label: "Epsilon", number: true, class: "price", value: (task) => task.price && (task.price.epsilon ?? Infinity),
        cell: (task) => (task.price ? priceOf(task.price.words) : "\u2013") },
    ];
  };
  const drawList = () => {
    const list = [...tasks.values()];
    const running = list.filter((task) => task.state === "running").length;
    at("count").textContent = [`${list.length} task${list.length === 1 ? "" : "s"}`, running && `${running} running`].filter(Boolean).join(" \u00b7 ");
    at("tasks").data = { columns: columns(list), rows: list, sort: view.sort, key: (task) => task.name,
      caption: list.length ? null : "There are no tasks yet. Create one with keyhush task create, or start keyhush serve with the settings of one." };
    at("list-note").textContent = "Epsilon bounds what anybody can learn about one device from everything that a task releases, also later; smaller is stronger. "
      + (operates() ? "Rounds appear as they are released." : "Viewers see the state after the last evaluation of the model: when exactly a round ended depends on who took part.");
  };

  /** What the server says of itself, where it does: the parts of a demonstration. */
  const drawAbout = (said) => {
    if (JSON.stringify(said) === JSON.stringify(about)) return;
    about = said;
    at("about").replaceChildren(...(said ? [el("h2", { id: "about-title" }, said.title), el("p", { class: "lead" }, said.lead),
      el("dl", {}, said.parts.map(({ name, does }) => el("div", {}, el("dt", {}, name), el("dd", {}, does)))),
      ...said.notes.map((note) => el("p", { class: "note" }, note))] : []));
  };

  // ---- one task: its parts are made once, and filled when something changes

  let parts = null;
  let places = new Map();
  const section = (title, lead, ...children) => {
    const id = `part-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
    return el("section", { "aria-labelledby": id }, el("div", { class: "head" }, el("h3", { id, class: "big" }, title)), lead && el("p", { class: "lead" }, lead), ...children);
  };
  const button = (words, key, onclick, style = "plain") => el("button", { type: "button", class: style, "data-key": key, onclick }, words);

  const build = (name) => {
    places = new Map();
    parts = {
      name, jump: el("nav", { class: "jump", "aria-label": "Parts of this page" }), state: el("span", { class: "state" }), why: el("p", { class: "why", hidden: true }), orders: el("div", { class: "orders" }),
      summary: el("div", { class: "summary" }), tiles: el("kh-tiles"), model: el("div"), privacy: el("div"), limits: el("kh-table"), limitsNote: el("p", { class: "soft" }),
      samples: el("kh-table", { class: "wide" }), ledger: el("div", { class: "ledger" }), statement: el("details", { class: "statement" }), operations: el("kh-operations"),
    };
    parts.samplesSection = section("What the model suggests", "The three words that the last released models suggest after public prompts. New words are marked.", parts.samples);
    parts.operationsSection = el("section", { class: "exact", hidden: true, "aria-labelledby": "part-operations" }, parts.operations);
    parts.spending = el("div");
    at("task").replaceChildren(
      el("p", { class: "back" }, el("a", { href: address({ task: null, zoom: null }), "data-key": "back" }, "\u2190 All tasks")),
      el("div", { class: "head" }, el("h2", { id: "task-title", tabindex: "-1" }, name), parts.state, el("span", { class: "grow" }), parts.orders),
      parts.why, parts.summary, parts.tiles, parts.jump,
      section("Model", "How well the released models predict, measured on public or synthetic text, or by devices with noise.", parts.model),
      section("Privacy", null, parts.spending, parts.privacy, el("h4", {}, "How often one device may take part"), parts.limits, parts.limitsNote),
      parts.samplesSection, parts.operationsSection,
      section("Statement and ledger", "The ledger is a signed chain of everything that was released. Keep its head: with it, keyhush privacy verify notices if entries are missing or were changed.",
        parts.ledger, parts.statement));
  };

  /** Links to the parts of the page that are there. The address is the view's, so they are buttons. */
  const drawJump = () => {
    const titles = [...at("task").querySelectorAll("h3.big")].filter((title) => !title.closest("[hidden]"));
    fill(parts.jump, titles.map((title) => title.textContent), () => titles.map((title) => button(title.textContent, `jump ${title.id}`, () => {
      title.tabIndex = -1;
      title.scrollIntoView({ block: "start" });
      title.focus({ preventScroll: true });
    }, "link")));
  };

  const fill = (place, mark, make) => {
    const text = JSON.stringify(mark);
    if (place.dataset.mark === text) return;
    place.dataset.mark = text;
    keepingFocus(place, () => place.replaceChildren(...[make()].flat().filter((child) => child != null && child !== false)));
  };

  const chartPlace = (key) => {
    if (!places.has(key)) places.set(key, el("kh-chart", { "data-chart": key }));
    return places.get(key);
  };
  const grid = (root, charted) => {
    const mark = charted.map((place) => place.dataset.chart).join(" ");
    let inner = root.querySelector(":scope > .grid");
    if (!inner) root.append((inner = el("div", { class: "grid" })));
    if (inner.dataset.mark !== mark) { inner.dataset.mark = mark; inner.replaceChildren(...charted); }
  };
  const constant = (curve) => curve.values.length > 0 && curve.values.every((value) => value === curve.values[0]);

  const drawCurves = (detail, group, root) => {
    const [lines, still] = [[], []];
    for (const chart of charts.filter((one) => one.group === group && !one.key.startsWith("epsilon"))) {
      const curve = detail.curves[chart.key];
      if (!curve?.values.some((value) => value != null)) continue;
      if (constant(curve) && curve.values.length > 1) { still.push([chart, curve]); continue; }
      const place = chartPlace(chart.key);
      place.data = { ...chart, sync: "rounds", xLabel: "rounds", zoom: view.zoom, lines: [{ name: chart.title, colour: "--run-0", x: curve.rounds, y: curve.values }] };
      lines.push(place);
    }
    grid(root, lines);
    let rest = root.querySelector(":scope > .constants");
    if (!rest) root.append((rest = el("div", { class: "constants" })));
    fill(rest, still.map(([chart, curve]) => [chart.key, curve.values[0]]), () => still.map(([chart, curve]) => el("span", { title: chart.note }, `${chart.title} (constant): `, el("b", {}, shown(chart.unit, curve.values[0])))));
    let none = root.querySelector(":scope > .empty");
    if (!none) root.append((none = el("p", { class: "empty" }, "Nothing has been measured yet. The first evaluation appears here.")));
    none.hidden = group !== "quality" || lines.length + still.length > 0;
  };

  const drawSpending = ({ spending, curves }, root) => {
    fill(root, [spending.words, spending.holds_for], () => el("p", { class: "lead" }, el("b", {}, `Epsilon ${spending.words}`),
      ` at delta ${spending.delta.toExponential().replace("e+", "e")}, for ${spending.holds_for}. It bounds what anybody can learn about one device; smaller is stronger.`));
    const past = curves[spending.curve];
    const place = chartPlace("spending");
    const lines = [];
    if (past) lines.push({ name: spending.curve_label, colour: "--run-0", x: past.rounds, y: past.values });
    if (spending.forecast) {
      const from = past?.rounds.at(-1) ?? 0;
      const ahead = spending.forecast.rounds.map((round, i) => [round, spending.forecast.values[i]]).filter(([round]) => round > from);
      if (past && ahead.length) ahead.unshift([from, past.values.at(-1)]);
      if (ahead.length > 1) lines.push({ name: "forecast to the end of the plan", colour: "--run-0", dash: [4, 5], x: ahead.map(([round]) => round), y: ahead.map(([, value]) => value) });
    }
    if (spending.budget != null && lines.length) lines.push({ name: "budget", colour: "--run-1", dash: [10, 4], x: [0, spending.planned], y: [spending.budget, spending.budget] });
    if (!lines.some((line) => line.x.length > 1)) return null;
    place.data = { title: "Epsilon over the rounds", note: spending.curve_note, unit: "epsilon", lines, sync: "rounds", xLabel: "rounds", zoom: view.zoom };
    return place;
  };

  const drawPrivacy = (detail) => {
    const spending = drawSpending(detail, parts.spending);
    drawCurves(detail, "privacy", parts.privacy);
    const inner = parts.privacy.querySelector(":scope > .grid");
    if (spending && inner.firstElementChild !== spending) inner.prepend(spending);
    const observed = (row, key) => (!row.observed ? "\u2013" : row.observed[key] == null ? "no device twice" : shown("number", row.observed[key]));
    const limits = detail.participation.flatMap((row) => [
      { id: `${row.stream} times`, what: `In ${row.title}, one device takes part at most`, limit: row.max_participations, unit: "time", seen: observed(row, "max_participations") },
      { id: `${row.stream} between`, what: "and between two times there are at least", limit: row.min_separation, unit: "round", seen: observed(row, "min_separation") },
    ]);
    parts.limits.data = { rows: limits, columns: [
      { key: "what", label: "Limit on participation", value: (row) => row.what },
      { key: "enforced", label: "Enforced", number: true, value: (row) => (row.limit == null ? "no limit" : `${shown("number", row.limit)} ${row.unit}${row.limit === 1 ? "" : "s"}`) },
      { key: "observed", label: detail.participation.some((row) => row.observed) ? "Observed: exact, outside the guarantee" : "Observed", number: true, value: (row) => row.seen },
    ] };
    parts.limitsNote.textContent = detail.participation_note;
  };

  const drawSamples = (detail) => {
    parts.samplesSection.hidden = !detail.samples.length;
    if (parts.samplesSection.hidden) return;
    const lines = some(detail.samples, MOST_EVALUATIONS);
    const of = (line, text) => line?.samples.find((sample) => sample.prompt === text);
    parts.samples.data = { rows: detail.samples.at(-1).samples.map((sample) => ({ id: sample.prompt })), columns: [
      { key: "prompt", label: "After typing", cell: (row) => prompt(row.id) },
      ...lines.map((line, i) => ({ key: `round ${line.round}`, label: `round ${shown("number", line.round)}`,
        class: i > 0 && i < lines.length - 1 ? "minor" : null, cell: (row) => of(line, row.id) && words(of(line, row.id), i > 0 && of(lines[i - 1], row.id)) })),
    ] };
  };

  const save = (path, name) => async (event) => {
    const pressed = event.currentTarget;
    pressed.disabled = true;
    try { await server.download(path, name); announce(`${name} was downloaded.`); } catch (error) { say(error); }
    pressed.disabled = false;
  };
  const drawLedger = (detail) => {
    const { ledger, name } = detail;
    const files = details.get(name)?.files?.files || [];
    fill(parts.ledger, [ledger, files], () => [
      el("dl", {}, [["Entries", shown("number", ledger.entries)], ["Head", el("code", {}, ledger.head)], ["Signed by", el("code", {}, ledger.key)],
        ["Opened", ledger.opened], ["Closed", ledger.closed || "no: more may follow"]].flatMap(([term, said]) => [el("dt", {}, term), el("dd", {}, said)])),
      el("p", { class: "files" }, button("Copy the head", "copy", async () => {
        try { await navigator.clipboard.writeText(ledger.head); announce("The head is copied."); } catch { announce("The browser does not let this page copy. Select the head instead."); }
      }), files.map((file) => button(`Download ${file.about}`, `file ${file.name}`, save(`api/tasks/${encodeURIComponent(name)}/export/${file.name}`, `${name}-${file.name}`)))),
    ]);
    fill(parts.statement, detail.statement, () => [el("summary", { "data-key": "statement" }, "Read the privacy statement"), ...markdown(detail.statement)]);
  };

  const drawOrders = (task) => {
    const possible = !operates() || ["over", "unreadable", "refused"].includes(task.state) ? [] : task.wanted === "stop" ? [] : task.wanted === "pause" ? ["resume", "stop"] : ["pause", "stop"];
    fill(parts.orders, possible, () => possible.map((order) => button(ORDERS[order][0], order, () => ask(task.name, order), order === "stop" ? "plain danger" : "plain")));
  };

  const drawTask = () => {
    const task = tasks.get(view.task);
    if (!task) {
      if (parts?.name !== null || !at("task").querySelector(".empty")) {
        parts = { name: null };
        at("task").replaceChildren(el("p", { class: "back" }, el("a", { href: address({ task: null, zoom: null }) }, "\u2190 All tasks")),
          el("h2", { id: "task-title", tabindex: "-1" }, view.task), el("p", { class: "empty" }, "There is no such task on this server."));
      }
      return;
    }
    if (parts?.name !== task.name) build(task.name);
    parts.state.dataset.state = task.state;
    parts.state.textContent = STATES[task.state] || task.state;
    const why = task.problem || task.why || "";
    parts.why.textContent = why.charAt(0).toUpperCase() + why.slice(1);
    parts.why.hidden = !parts.why.textContent;
    drawOrders(task);
    const detail = details.get(task.name)?.data;
    at("task").classList.toggle("bare", !detail);
    at("task").setAttribute("aria-busy", String(!detail && task.readable));
    if (detail) {
      fill(parts.summary, [detail.sentence, detail.notes], () => el("blockquote", {}, detail.sentence, detail.notes.length > 0 && el("ul", { class: "notes" }, detail.notes.map((note) => el("li", {}, note)))));
      const tiles = JSON.stringify(detail.tiles);
      if (parts.tiles.dataset.mark !== tiles) { parts.tiles.dataset.mark = tiles; parts.tiles.data = detail.tiles; }
      drawCurves(detail, "quality", parts.model);
      drawPrivacy(detail);
      drawSamples(detail);
      drawLedger(detail);
    }
    const operations = details.get(task.name)?.operations;
    parts.operationsSection.hidden = !operates() || !operations;
    if (operates() && operations) parts.operations.data = { ...operations, failed: detail?.failed || [], zoom: view.zoom };
    drawJump();
    load(task);
  };

  /** Fetches what has changed of the task that is looked at. */
  const load = async (task) => {
    const known = details.get(task.name) || {};
    details.set(task.name, known);
    const fetched = async (key, path, version) => {
      if (known[`${key}Loading`] || known[`${key}Version`] === version) return;
      known[`${key}Loading`] = true;
      try {
        known[key] = await server.json(path);
        known[`${key}Version`] = version;
      } catch { known[`${key}Failed`] = true; }
      known[`${key}Loading`] = false;
      if (view.task === task.name && !known[`${key}Failed`]) draw();
      known[`${key}Failed`] = false;
    };
    const path = `api/dashboard/${encodeURIComponent(task.name)}`;
    if (task.readable) {
      fetched("data", path, task.version);
      fetched("files", `api/tasks/${encodeURIComponent(task.name)}/export`, task.state);
    }
    if (operates()) fetched("operations", `${path}/operations`, `${task.version} ${task.operations}`);
  };

  // ---- orders

  const say = (error) => {
    const dialog = at("sure");
    dialog.replaceChildren(el("h2", { id: "sure-title" }, "That did not work"), el("p", {}, error.message || "The server does not answer."),
      el("div", { class: "choices" }, button("Close", "close", () => dialog.close())));
    if (!dialog.open) dialog.showModal();
  };
  /** Says what an order does before it is given. What cannot be undone needs the name of the task. */
  const ask = (name, order) => {
    const dialog = at("sure");
    const [verb, title, means] = ORDERS[order];
    const typed = order === "stop" && el("input", { id: "typed", autocomplete: "off", spellcheck: "false" });
    const confirm = button(`${verb} ${name}`, "confirm", async () => {
      confirm.disabled = true;
      try {
        await server.post(`api/tasks/${encodeURIComponent(name)}/${order}`);
        dialog.close();
        announce(`${name}: ${verb.toLowerCase()} is ordered.`);
      } catch (error) { say(error); }
    }, order === "stop" ? "primary danger" : "primary");
    if (typed) {
      confirm.disabled = true;
      typed.addEventListener("input", () => { confirm.disabled = typed.value !== name; });
    }
    dialog.replaceChildren(el("h2", { id: "sure-title" }, title), el("p", {}, means),
      ...(typed ? [el("label", { for: "typed" }, `Type ${name} to confirm`), typed] : []),
      el("div", { class: "choices" }, button("Cancel", "cancel", () => dialog.close()), confirm));
    dialog.showModal();
    (typed || dialog.querySelector("[data-key=cancel]")).focus();
    dialog.addEventListener("close", () => parts?.orders?.querySelector("button")?.focus(), { once: true });
  };

  // ---- all of it

  let drawn = null;
  const draw = () => {
    const signedIn = signed === "in";
    at("enter").hidden = signed !== "out";
    at("out").hidden = signed === "out";
    at("about").hidden = !signedIn || !about;
    at("list").hidden = !signedIn || view.task != null;
    at("task").hidden = !signedIn || view.task == null;
    at("who").textContent = signedIn ? ROLES[role] || role : "";
    document.title = signedIn && view.task != null ? `${view.task} \u00b7 Keyhush` : "Keyhush dashboard";
    if (!signedIn) return;
    if (view.task == null) drawList(); else drawTask();
    // Who opens another page by its link hears its title.
    if (drawn !== null && drawn !== `${view.task}`) at(view.task == null ? "list-title" : "task-title")?.focus();
    drawn = `${view.task}`;
  };
  const leave = (why) => {
    signed = "out";
    about = null;
    drawn = null;
    tasks.clear();
    details.clear();
    parts = null;
    at("task").replaceChildren();
    at("enter-why").textContent = why;
    at("enter-why").hidden = !why;
    at("token").value = "";
    at("sure").close();
    draw();
    at("token").focus();
  };
  const told = (said) => {
    if (said.reset) {
      tasks.clear();
      role = said.role;
      // A server that was started again counts its versions from 0: what is shown stays until it is read again.
      details.forEach((known) => { known.dataVersion = known.filesVersion = known.operationsVersion = null; });
    }
    if (said.charts) charts = said.charts;
    if (said.reset) drawAbout(said.about || null);
    for (const task of said.tasks) {
      const before = tasks.get(task.name);
      tasks.set(task.name, task);
      if (view.task !== task.name || !before || said.reset) continue;
      if (before.state !== task.state) announce(`${task.name}: ${STATES[task.state]}`);
      else if (before.rounds !== task.rounds) announce(`round ${shown("number", task.rounds)} of ${shown("number", task.planned)}`);
    }
    const names = new Set(said.names);
    for (const name of [...tasks.keys()]) if (!names.has(name)) { tasks.delete(name); details.delete(name); }
    signed = "in";
    draw();
  };
  const SAID = { live: "live", waiting: "waiting for the server \u2026", out: "" };
  const start = () => {
    const named = () => { at("theme").textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"; };
    named();
    window.addEventListener("keyhush-theme", named);
    at("theme").addEventListener("click", () => window.Keyhush.toggleTheme());
    at("enter-form").addEventListener("submit", (event) => { event.preventDefault(); server.signIn(at("token").value); });
    at("out").addEventListener("click", () => server.signOut());
    at("tasks").addEventListener("sort", (event) => change({ sort: event.detail }));
    at("task").addEventListener("zoom", (event) => change({ zoom: event.detail }));
    document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); at("main").focus(); });
    window.addEventListener("hashchange", () => { readAddress(); draw(); });
    server = window.Keyhush.access({
      onState: (state, why) => {
        at("live").dataset.state = state;
        if (at("live").textContent !== SAID[state]) at("live").textContent = SAID[state];
        if (state === "out") leave(why);
      },
      onTasks: told,
    });
    server.begin();
    readAddress();
    draw();
  };
  start();
})();

// What a hostile or broken server could answer: in the place of fetch, for the test that opens the page on it.
"use strict";
(() => {
  const evil = "<img src=x onerror=alert(1)>";
  const long = "x".repeat(400) + evil;
  const task = (name, i) => ({ name, version: 1, operations: 1, state: ["running", "paused", "broken", "unheard-of"][i % 4], wanted: "run", why: long, readable: true,
    rounds: 1e15, planned: i % 2 ? 0 : 1e15, numbers: [{ key: "accuracy_top1", value: i % 3 ? null : 1e300 }], small: [null, 1e300, -1e300], price: { words: "no privacy: infinite", epsilon: null } });
  const names = [evil, ...Array.from({ length: 49 }, (_, i) => `task-${i}`)];
  const charts = ["accuracy_top1", "perplexity"].map((key) => ({ key, title: evil, note: long, group: "quality", unit: "share", log: key === "perplexity", better: null, band: null }))
    .concat([{ key: "clip_norm", title: "Clip norm", note: "", group: "privacy", unit: "number", log: false, better: null, band: null }]);
  const many = Array.from({ length: 10000 }, (_, i) => i);
  const detail = { name: evil, sentence: long, notes: [long], tiles: [{ name: evil, value: "9".repeat(300), note: long }],
    curves: { accuracy_top1: { rounds: many, values: many.map((i) => (i % 7 ? i / 1e4 : null)) }, perplexity: { rounds: [0, 1], values: [null, null] }, clip_norm: { rounds: [0, 1, 2], values: [1e-300, 1e300, null] } },
    spending: { words: "no privacy: infinite", holds_for: long, delta: 0, budget: 1e308, planned: 1e15, curve: null, curve_label: long, curve_note: evil, forecast: { rounds: [1, 2], values: [null, 1e308] } },
    participation: [{ stream: evil, title: long, max_participations: null, min_separation: 1e15, observed: { max_participations: 3, min_separation: null } }], participation_note: long,
    samples: [{ round: 0, samples: [{ prompt: evil, words: [evil, long] }] }, { round: 1, samples: [{ prompt: evil, words: [] }] }],
    failed: [{ round: 1, attempt: 1, why: long }], statement: "# <script>alert(1)</script>\n\n- **" + evil + "\n- `" + long,
    ledger: { entries: 1e15, head: long, key: long, opened: evil, closed: evil } };
  const attempt = (i) => ({ what: long, attempt: 1e9, open: false, released: false, why: long, began: i, ended: 1e15, seconds: 1e300, goal: 0, asked: 1e15, reported: 0, dropped: 1e15,
    shapes: [{ signs: evil, words: evil, devices: 1e15 }] });
  const operations = { outside_the_guarantee: { note: evil, enrolled: 1e15, asked: null, population: 1, waiting: null, check_ins: { times: [1, 2], counts: [0, 1e300] },
    attempts: [1, 2, 3].map(attempt), observed: [] } };
  const list = { version: 1, reset: true, role: "operator", names, tasks: names.map(task), charts };
  const json = (value) => new Response(JSON.stringify(value), { status: 200 });
  window.fetch = async (path) => {
    if (path === "api/events") {
      const event = `event: tasks\ndata: ${JSON.stringify(list)}\n\n`;
      const half = Math.floor(event.length / 2);
      const bytes = new TextEncoder();
      return new Response(new ReadableStream({ start: (out) => { out.enqueue(bytes.encode(event.slice(0, half))); setTimeout(() => out.enqueue(bytes.encode(event.slice(half) + ":\n\n")), 50); } }), { status: 200 });
    }
    if (path.endsWith("/operations")) return json(operations);
    if (path.endsWith("/export")) return json({ files: [{ name: evil, about: long }] });
    return json(detail);
  };
})()

// Who looks at the dashboard, and where it has its data from: requests with a token, and events that are read by fetch.
//
// The token comes from the address (#token=...), from which it is removed at once, or is typed in. It is kept for this tab alone
// (sessionStorage) and sent as a header, never as a cookie: no other page can use it.
//
// GET api/dashboard                        { version, reset, role, names, tasks, charts }: the list
// GET api/events                           "tasks": the same, first all of it, then what changed; `names` are all there are
// GET api/dashboard/NAME                   all of one task that is released
// GET api/dashboard/NAME/operations        exact counts and times, for operators
// GET api/tasks/NAME/export, .../FILE      what can be taken home of a task
// POST api/tasks/NAME/pause|resume|stop    orders, for operators
"use strict";
(() => {
  const KEY = "keyhush-token";
  /** So long after a break it tries again, in milliseconds: soon at first. */
  const RETRY = [400, 800, 1600, 3000];
  /** A server says something every 15 seconds. */
  const SILENCE = 40000;

  let kept = null;
  const stored = () => { try { return sessionStorage.getItem(KEY); } catch { return kept; } };
  const keep = (token) => {
    kept = token;
    try { if (token) sessionStorage.setItem(KEY, token); else sessionStorage.removeItem(KEY); } catch { /* a browser that keeps nothing */ }
  };

  /** Takes the token out of the address, so that it is in no history and no link that is passed on. */
  const fromAddress = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (!asked.has("token")) return;
    keep(asked.get("token").trim() || null);
    asked.delete("token");
    history.replaceState(null, "", `#${asked}`);
  };

  /** An answer that is a refusal, in words. */
  class Refused extends Error {
    constructor(status, words) { super(words); this.status = status; }
  }
  const wordsOf = async (answer) => {
    const text = await answer.text().catch(() => "");
    try { const said = JSON.parse(text); return [said.detail, said.next].filter(Boolean).join(". ") || text; } catch { return text.trim(); }
  };

  const ask = async (path, options = {}) => {
    const token = stored();
    // What cannot be a header is no token.
    if (!token || !/^[\x21-\x7e]+$/.test(token)) throw new Refused(401, "");
    const answer = await fetch(path, { ...options, cache: "no-store", credentials: "omit", headers: { ...options.headers, Authorization: `Bearer ${token}` } });
    if (!answer.ok) throw new Refused(answer.status, String(await wordsOf(answer)));
    return answer;
  };

  /** Reads events as they come, and calls with each; ends when the server ends, or is silent for too long. */
  const follow = async (signal, onOpen, onEvent) => {
    const silent = new AbortController();
    const stop = () => silent.abort();
    signal.addEventListener("abort", stop);
    let timer = setTimeout(stop, SILENCE);
    try {
      const answer = await ask("api/events", { signal: silent.signal });
      onOpen();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ""; ;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE);
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const lines = part.split("\n");
          const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
          if (data) onEvent(lines.find((line) => line.startsWith("event: "))?.slice(7), JSON.parse(data));
        }
      }
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      silent.abort();
    }
  };

  /**
   * The server. `onState` is told "waiting", "live", or "out" with why: nobody is signed in. It is asked again for as long as it
   * takes: a page that was left open continues when the server is back.
   */
  window.Keyhush.access = ({ onState, onTasks }) => {
    let current = null;
    let was = false;
    const out = (why) => {
      current?.abort();
      current = null;
      was = false;
      keep(null);
      onState("out", why);
    };
    const refused = (error) => {
      if (!(error instanceof Refused) || error.status !== 401) return false;
      out(was ? "This token is not valid any more: it was revoked or has expired. Ask for another one."
        : "This server does not accept this token: it is mistyped, revoked, or another server's.");
      return true;
    };
    const listen = async () => {
      current?.abort();
      const mine = (current = new AbortController());
      for (let tries = 0; current === mine; tries += 1) {
        onState("waiting");
        try {
          await follow(mine.signal, () => { was = true; tries = 0; onState("live"); }, (kind, told) => kind === "tasks" && current === mine && onTasks(told));
        } catch (error) {
          if (current !== mine || refused(error)) return;
        }
        if (current !== mine) return;
        onState("waiting");
        await new Promise((done) => setTimeout(done, RETRY[Math.min(tries, RETRY.length - 1)]));
      }
    };
    const checked = async (path, options) => {
      try {
        return await ask(path, options);
      } catch (error) {
        refused(error);
        throw error;
      }
    };
    const begin = () => {
      fromAddress();
      if (stored()) listen(); else onState("out", "");
    };
    window.addEventListener("hashchange", () => { if (location.hash.includes("token=")) { was = false; begin(); } });
    return {
      begin,
      signIn: (token) => { keep(token.trim()); was = false; listen(); },
      signOut: () => out(""),
      json: async (path) => (await checked(path)).json(),
      post: async (path) => checked(path, { method: "POST" }),
      /** Downloads a file: the request needs the token, so a link alone would not do. */
      download: async (path, name) => {
        const url = URL.createObjectURL(await (await checked(path)).blob());
        const link = window.Keyhush.el("a", { href: url, download: name });
        link.click();
        setTimeout(() => URL.revokeObjectURL(url), 10000);
      },
    };
  };
})();

// Where a page has its data from: a server, over one small API and server-sent events, or a copy that is next to the page.
//
// GET api/events   "runs": { version, reset, ids, runs, charts }, first all of them, then those that changed; `ids` are all there are
// GET api/runs     the same at once
// GET api/runs/ID  all of one run
"use strict";
(() => {
  const RETRY = 2000;

  /** Data that was exported with the page. */
  const copied = ({ made, list, details }, { onRuns, onState }) => {
    onState("copy", made);
    onRuns(list);
    return { detail: async (id) => details[id] };
  };

  /** A server. It is asked again for as long as it takes: a page that was left open continues when the server is back. */
  const live = ({ onRuns, onState }) => {
    const listen = () => {
      const events = new EventSource("api/events");
      events.addEventListener("open", () => onState("live"));
      events.addEventListener("runs", (event) => onRuns(JSON.parse(event.data)));
      events.addEventListener("error", () => {
        onState("waiting");
        if (events.readyState === EventSource.CLOSED) setTimeout(listen, RETRY);
      });
    };
    onState("waiting");
    listen();
    return {
      detail: async (id) => {
        const answer = await fetch(`api/runs/${encodeURIComponent(id)}`);
        return answer.ok ? answer.json() : null;
      },
    };
  };

  window.Keyhush.source = (handlers) => (window.keyhushCopy ? copied(window.keyhushCopy, handlers) : live(handlers));
})();

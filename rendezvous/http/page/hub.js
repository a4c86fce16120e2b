"use strict";
// One stream of events for all pages of this musterd in one browser: a browser has six connections to a server.
//
// Runs as a shared worker, which browsers also offer on plain http in an intranet (Web Locks they do not). Where there is
// no shared worker, as on some phones, each page has a hub of its own. A page tells which run it shows, and repeats that;
// a hidden page takes part again when it is shown. The hub tells: live, lost, runs, run, forgotten, refused, nodes, steps.

const HUB_PROTOCOL = "1";  // Pages and a hub of different releases of muster do not meet.
const MAX_WATCHED = 8;     // Runs in one stream, as the server has it. Further ones are asked for instead.
const NODES_AGAIN_MS = 2000;
const STEPS_EVERY = 5;     // Each fifth time.
const RETRY_MS = 5000;
const ANSWER_WITHIN_MS = 10_000;
const PAGE_GONE_AFTER_MS = 70_000;

class Hub {
  constructor() {
    this.pages = new Map();     // Its callback: {run, seenAt}.
    this.latest = new Map();    // What pages that come later must know: the last message of each kind and run.
    this.refused = new Map();   // Runs that may not be watched: why.
    this.stream = null;
    this.watched = "";
    this.polls = 0;
    this.isZombie = false;      // The stream may be dead: a request was not answered.
  }

  // `run`: its id; empty: only the list. null: the page is hidden or gone.
  show(page, run) {
    if (run === null) this.pages.delete(page);
    else {
      const known = this.pages.get(page);
      this.pages.set(page, {run, seenAt: Date.now()});
      if (known?.run === run) return;
      this.catchUp(page, run, !known);
    }
    this.open();
    if (run && this.stream) this.poll();
  }

  catchUp(page, run, isNew) {
    for (const [key, message] of this.latest)
      if (message.run === undefined ? isNew : message.run === run && key) page(message);
  }

  runs() {
    return [...new Set([...this.pages.values()].map((page) => page.run).filter(Boolean))].sort();
  }

  tell(kind, run, data) {
    const message = {kind, run, data};
    if (kind === "live" || kind === "lost") this.latest.set("state", message);
    else this.latest.set(`${kind === "forgotten" || kind === "refused" ? "run" : kind} ${run ?? ""}`, message);
    for (const [page, {run: shown}] of this.pages) if (run === undefined || run === shown) page(message);
  }

  open() {
    const runs = this.runs();
    for (const key of this.latest.keys()) {
      const of = this.latest.get(key).run;
      if (of !== undefined && !runs.includes(of)) this.latest.delete(key);
    }
    for (const run of this.refused.keys()) if (!runs.includes(run)) this.refused.delete(run);
    if (!this.pages.size) return this.close();
    const watched = runs.filter((run) => !this.refused.has(run)).slice(0, MAX_WATCHED)
      .map((run) => `run=${encodeURIComponent(run)}`).join("&");
    if (this.stream && watched === this.watched) return;
    this.close();
    this.watched = watched;
    this.isZombie = false;
    const stream = new EventSource(`/api/v1/events${watched ? "?" + watched : ""}`);
    this.stream = stream;
    stream.onopen = () => this.tell("live");
    stream.addEventListener("runs", (message) => this.tell("runs", undefined, message.data));
    stream.addEventListener("run", (message) => {
      const run = JSON.parse(message.data).id;
      this.tell("run", run, message.data);
      this.poll();
    });
    stream.addEventListener("forgotten", (message) => this.tell("forgotten", JSON.parse(message.data).id));
    stream.onerror = () => {
      if (stream !== this.stream) return;
      if (stream.readyState !== EventSource.CLOSED) return this.tell("lost", undefined, "connection lost; trying again");
      this.explainRefusal(runs);  // The browser does not try again.
    };
    this.later(NODES_AGAIN_MS);
  }

  close() {
    this.stream?.close();
    this.stream = null;
    this.watched = "";
    clearTimeout(this.timer);
    this.latest.delete("state");
  }

  later(ms) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), ms);
  }

  // A browser does not tell why a stream was refused.
  async explainRefusal(runs) {
    clearTimeout(this.timer);
    let why = "connection lost; trying again";
    try {
      const ready = await this.ask("/readyz");
      const list = ready.ok ? await this.ask("/api/v1/runs?limit=0") : ready;
      const code = list.ok ? "" : (await list.json()).error.code;
      if (list.ok) why = await this.refusedRun(runs) ? "" : "too many readers of events, such as open pages: trying again";
      else if (list.status === 401) why = "not let in any more: make a new link with musterctl open";
      else if (code === "standing_by") why = "this musterd stands by: open the page of the one that leads";
    } catch {
      // The server does not answer at the moment.
    }
    if (why) this.tell("lost", undefined, why);
    this.watched = "";
    this.stream = null;
    this.timer = setTimeout(() => this.open(), why ? RETRY_MS : 0);
  }

  // Whether one of the runs is not for this reader: the others are watched without it.
  async refusedRun(runs) {
    let found = false;
    for (const run of runs) {
      const reply = await this.ask(`/api/v1/runs/${encodeURIComponent(run)}`);
      if (reply.status !== 400 && reply.status !== 403 && reply.status !== 414) continue;
      found = true;
      const why = (await reply.json()).error.message;
      this.refused.set(run, why);
      this.tell("refused", run, why);
    }
    return found;
  }

  ask(target) {
    return fetch(target, {signal: AbortSignal.timeout(ANSWER_WITHIN_MS)});
  }

  async fetchFor(run, kind, target) {
    const reply = await this.ask(`/api/v1/runs/${encodeURIComponent(run)}${target}`);
    if (reply.ok) this.tell(kind, run, await reply.text());
    else if (reply.status === 404 && kind === "run") this.tell("forgotten", run);
  }

  // Asks for what no stream has: nodes and steps. Asks for anything at all, so that a dead connection is noticed.
  async poll() {
    clearTimeout(this.timer);
    if (this.isPolling) return;
    this.isPolling = true;
    const now = Date.now();
    for (const [page, {seenAt}] of this.pages) if (now - seenAt > PAGE_GONE_AFTER_MS) this.pages.delete(page);
    try {
      const runs = this.runs().filter((run) => !this.refused.has(run));
      const steps = this.polls++ % STEPS_EVERY === 0;
      for (const [i, run] of runs.entries()) {
        if (i >= MAX_WATCHED) await this.fetchFor(run, "run", "");
        await this.fetchFor(run, "nodes", "/nodes");
        if (steps || !this.latest.has(`steps ${run}`)) await this.fetchFor(run, "steps", "/steps");
      }
      if (!runs.length && steps) await this.ask("/healthz");
      if (this.isZombie && this.stream) this.close();
    } catch {
      this.isZombie = true;
      if (this.stream) this.tell("lost", undefined, "connection lost; trying again");
    }
    this.isPolling = false;
    this.open();
    if (this.stream) this.later(NODES_AGAIN_MS);
  }
}

if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
  const hub = new Hub();
  self.onconnect = ({ports: [port]}) => {
    const page = (message) => port.postMessage(message);
    port.onmessage = ({data}) => hub.show(page, data.run);
  };
}

"use strict";
// Shows the data of /api/v1 live. Every text from the server is set through textContent, so that no text becomes HTML.

const by = (id) => document.getElementById(id);
const NODE_SIGNS = {
  working: ["\u25cf", "good"], finished: ["\u2713", "calm"], joined: ["\u25d0", "wait"], preparing: ["\u25d0", "wait"],
  waiting: ["\u25d4", "wait"], resuming: ["\u21bb", "wait"], restarting: ["\u21bb", "wait"], spare: ["\u25cb", "calm"],
  absent: ["\u2715", "bad"], kept_out: ["\u2298", "wait"],
};
const RUN_TONES = {
  running: "good", succeeded: "calm", failed: "bad", restarting: "wait", gathering: "wait", preparing: "wait",
  recovering: "wait", closed: "calm", empty: "calm",
};
const EVENT_WORDS = {
  run_began: "began", node_joined: "node joined", node_left: "node left", node_lost: "node lost",
  round_complete: "round complete", round_restarts: "restart", round_resumed: "round resumed",
  round_not_resumed: "round not resumed", run_closed: "closed", run_succeeded: "succeeded", run_failed: "failed",
  run_broken: "broken", node_drained: "node drained", node_excluded: "node excluded", node_allowed: "node allowed",
};
const EVENT_TONES = {
  node_lost: "bad", run_failed: "bad", run_broken: "bad", round_restarts: "wait", round_not_resumed: "wait",
  node_drained: "wait", node_excluded: "wait",
  round_complete: "good", round_resumed: "good", run_succeeded: "calm",
};
const NODES_AGAIN_MS = 2000;
const LEADER_AGAIN_MS = 5000;

let chosen = "";       // The id of the chosen run.
let stream = null;     // The stream of its events.
let nodes = [];        // Its nodes, as the server sent them last.
let pressed = "";      // The name of the chosen node.
let nodesTimer = 0;
let list = null;       // The stream of the list of runs.
let listTimer = 0;
let standsBy = false;  // Whether this musterd stood by when it was last asked.

function make(tag, text, tone) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (tone) element.className = tone;
  return element;
}

function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
}

const orDash = (value) => value === null || value === undefined ? "\u2013" : String(value);
// The date is left out on its own day: histories reach back for weeks.
function clock(at) {
  const time = new Date(at);
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString() : time.toLocaleString();
}

function setLive(text, lost) {
  by("live").textContent = text;
  by("live").classList.toggle("lost", Boolean(lost));
}

// --- the list of runs ---

function runEntry(run) {
  const item = document.createElement("li");
  const button = make("button");
  button.type = "button";
  button.dataset.id = run.id;
  button.append(make("b", run.id));
  const line = document.createElement("small");
  line.append(make("span", run.state, RUN_TONES[run.state]),
    ` \u00b7 round ${run.round} \u00b7 ${run.nodes_in_round} of ${run.nodes} nodes`);
  button.append(line);
  button.addEventListener("click", () => { location.hash = encodeURIComponent(run.id); });
  item.append(button);
  return item;
}

function showRuns(list) {
  const focused = document.activeElement?.dataset?.id;
  by("runs").replaceChildren(...list.runs.map(runEntry));
  by("total").textContent = list.total > list.runs.length ? `${list.runs.length} of ${list.total}` : String(list.total);
  by("no-runs").hidden = list.total > 0;
  markChosen();
  if (focused) buttonOf(focused)?.focus();
  if (!chosen && list.runs.length === 1) location.replace(`#${encodeURIComponent(list.runs[0].id)}`);
}

function buttonOf(id) {
  return [...by("runs").querySelectorAll("button")].find((button) => button.dataset.id === id);
}

function markChosen() {
  for (const button of by("runs").querySelectorAll("button")) {
    if (button.dataset.id === chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

// --- the chosen run ---

function showFacts(run) {
  const wanted = run.min_nodes === run.max_nodes ? orDash(run.min_nodes) : `${run.min_nodes} to ${run.max_nodes}`;
  const facts = [["Round", run.round], ["Generation", run.generation],
    ["Restarts", `${run.restarts_used} of ${orDash(run.restarts_allowed)}`],
    ["Nodes in the round", `${run.nodes_in_round} of ${run.nodes}`], ["Wanted", wanted]];
  if (run.last_call_seconds !== null) facts.push(["Last call ends in", span(run.last_call_seconds)]);
  by("facts").replaceChildren(...facts.map(([name, value]) => {
    const box = document.createElement("div");
    box.append(make("dt", name), make("dd", orDash(value)));
    return box;
  }));
}

function who(event) {
  if (!event.node) return "";
  return event.group_rank === null ? event.node : `node ${event.group_rank} (${event.node})`;
}

function showFailure(failure, report) {
  by("failure").hidden = !failure;
  if (!failure) return;
  by("failure-who").textContent = `${who(failure) || "the run"} at ${clock(failure.at)}, round ${failure.round}`;
  const lines = [failure.text];
  if (report) {
    lines.push(`rank ${report.rank} (local rank ${report.local_rank}, pid ${report.pid}) ${report.exit}`);
    for (const words of [report.because, report.message, report.stderr_end]) if (words) lines.push("", words.trimEnd());
  }
  by("failure-text").textContent = lines.join("\n");
}

function showMissing(run) {
  const lines = run.missing.map((node) => {
    const where = `node ${orDash(node.group_rank)} (${node.name})`;
    return node.expected ? `${where} is alive and about to come back`
      : `${where} is gone since ${clock(Date.parse(run.at) - 1000 * node.since_seconds)}: ${node.why}`;
  });
  if (run.missing_total > run.missing.length) lines.push(`and ${run.missing_total - run.missing.length} more`);
  if (run.lacking > 0) lines.push(`${run.lacking} more ${run.lacking === 1 ? "node" : "nodes"} must come`);
  by("missing").hidden = lines.length === 0;
  by("missing-list").replaceChildren(...lines.map((line) => make("li", line)));
}

function historyEntry(event) {
  const item = document.createElement("li");
  const time = make("time", clock(event.at));
  time.dateTime = event.at;
  const text = document.createElement("span");
  text.append(make("b", EVENT_WORDS[event.kind] ?? event.kind, EVENT_TONES[event.kind]));
  const words = [`round ${event.round}`];
  if (event.cause) words.push(event.cause.replaceAll("_", " "));
  if (event.node) words.push(who(event));
  if (event.took_seconds !== undefined) words.push(`after ${span(event.took_seconds)}`);
  if (event.text) words.push(event.text);
  if (event.like_events) words.push(`and ${event.like_events} more of this kind`);
  text.append(words.join(" \u00b7 "));
  item.append(time, text);
  return item;
}

function showRun(run) {
  by("none").hidden = true;
  by("chosen").hidden = false;
  by("id").textContent = run.id;
  by("state").textContent = run.state;
  by("state").className = `badge ${RUN_TONES[run.state] ?? ""}`;
  by("reason").textContent = run.reason;
  document.title = `${run.state} \u00b7 ${run.id} \u00b7 muster`;
  showFacts(run);
  showFailure(run.first_failure, run.first_failure_report);
  showMissing(run);
  by("history").replaceChildren(...[...run.events].reverse().map(historyEntry));
}

// --- its nodes ---

// The state of the workers, from the latest report of their node.
function reportParts(report) {
  const counts = {};
  for (const worker of report.workers) counts[worker.state] = (counts[worker.state] ?? 0) + 1;
  const parts = [Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ") || "no workers yet"];
  const steps = report.workers.filter((worker) => worker.step !== null).map((worker) => worker.step);
  if (steps.length > 0) parts.push(`step ${Math.min(...steps)}`);
  parts.push(`started ${report.starts} ${report.starts === 1 ? "time" : "times"}`);
  if (report.failure) parts.push(`last failure: rank ${report.failure.rank} ${report.failure.exit}`);
  return parts;
}

const stateWords = (state) => state.replaceAll("_", " ");
const counted = (count, word) => `${count} ${count === 1 ? word : word + (word.endsWith("s") ? "es" : "s")}`;

function nodeText(node) {
  const parts = [`${node.name}: ${stateWords(node.state)}`, node.kind];
  if (node.group_rank !== null) parts.push(`node rank ${node.group_rank}`);
  if (node.first_rank !== null && node.local_world_size !== null) {
    const last = node.first_rank + node.local_world_size - 1;
    parts.push(last > node.first_rank ? `ranks ${node.first_rank} to ${last}` : `rank ${node.first_rank}`);
  } else if (node.local_world_size !== null) parts.push(`${node.local_world_size} workers`);
  if (node.absent_seconds !== null) parts.push(`without a connection for ${span(node.absent_seconds)}`);
  else if (node.silent_seconds !== null) parts.push(`last heard ${span(node.silent_seconds)} ago`);
  if (node.spare) parts.push("a spare");
  if (node.kept_out) parts.push(`${node.kept_out} by an operator`);
  const {failures, losses} = node.strikes;
  if (failures + losses > 0) parts.push(`strikes of its host: ${counted(failures, "failure")}, ${counted(losses, "loss")}`);
  if (node.report) parts.push(...reportParts(node.report));
  parts.push(`address ${node.address}, agent's pid ${node.pid}`);
  return parts.join(" \u00b7 ");
}

function fillNode(button, node) {
  const [sign, tone] = NODE_SIGNS[node.state] ?? ["?", "bad"];
  const text = `${sign} ${orDash(node.group_rank)}`;
  if (button.textContent !== text) button.textContent = text;
  button.className = tone;
  button.title = nodeText(node);
  button.dataset.name = node.name;
  button.setAttribute("aria-label", `node ${orDash(node.group_rank)}, ${stateWords(node.state)}`);
  button.setAttribute("aria-pressed", String(node.name === pressed));
}

function showNodes() {
  const grid = by("nodes");
  while (grid.childElementCount > nodes.length) grid.lastElementChild.remove();
  const fresh = document.createDocumentFragment();
  for (let i = grid.childElementCount; i < nodes.length; ++i) {
    const button = document.createElement("button");
    button.type = "button";
    button.tabIndex = i === 0 ? 0 : -1;
    fresh.append(button);
  }
  grid.append(fresh);
  const counts = {};
  let i = 0;
  for (const button of grid.children) {
    const node = nodes[i++];
    counts[node.state] = (counts[node.state] ?? 0) + 1;
    fillNode(button, node);
  }
  by("node-counts").textContent = String(nodes.length);
  by("legend").replaceChildren(...Object.entries(counts).map(([state, count]) => {
    const [sign, tone] = NODE_SIGNS[state] ?? ["?", "bad"];
    const item = document.createElement("li");
    item.append(make("span", sign, tone), ` ${count} ${stateWords(state)}`);
    return item;
  }));
  const node = nodes.find((one) => one.name === pressed);
  by("node").textContent = node ? nodeText(node) : "Choose a node for its ranks and its last keep-alive.";
}

async function fetchNodes() {
  clearTimeout(nodesTimer);
  const id = chosen;
  if (!id) return;
  if (!document.hidden) {
    try {
      const reply = await fetch(`/api/v1/runs/${encodeURIComponent(id)}/nodes`);
      if (reply.ok && id === chosen) {
        const rank = (node) => node.group_rank ?? Infinity;
        nodes = (await reply.json()).nodes.sort((a, b) => rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0);
        showNodes();
      }
    } catch {
      // The event streams show that the connection is lost, and reconnect by themselves.
    }
  }
  clearTimeout(nodesTimer);
  nodesTimer = setTimeout(fetchNodes, NODES_AGAIN_MS);
}

// --- what is chosen ---

function choose() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (id === chosen && stream) return;
  chosen = id;
  pressed = "";
  stream?.close();
  stream = null;
  nodes = [];
  markChosen();
  showNodes();
  by("chosen").hidden = true;
  by("none").hidden = false;
  by("none").textContent = id ? "Waiting for this run." : "Choose a run.";
  if (!id) return;
  stream = new EventSource(`/api/v1/runs/${encodeURIComponent(id)}/events`);
  stream.addEventListener("run", (message) => {
    showRun(JSON.parse(message.data));
    fetchNodes();
  });
  stream.addEventListener("forgotten", () => {
    stream.close();
    stream = null;  // The list of runs opens it again when the run begins again.
    by("reason").textContent = "musterd has forgotten this run: nobody was in it any more.";
  });
  stream.addEventListener("error", () => {
    if (stream.readyState !== EventSource.CLOSED) return;
    by("none").textContent = "musterd does not know this run: it has not begun, or is forgotten.";
    stream = null;
  });
}

function press(button) {
  if (!button) return;
  pressed = button.dataset.name;
  for (const one of by("nodes").children) one.tabIndex = one === button ? 0 : -1;
  button.focus();
  showNodes();
}

by("nodes").addEventListener("click", (event) => press(event.target.closest("button")));
by("nodes").addEventListener("keydown", (event) => {
  const all = [...by("nodes").children];
  const at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = getComputedStyle(by("nodes")).gridTemplateColumns.split(" ").length;
  const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: all.length - 1 - at};
  const move = moves[event.key];
  if (move === undefined || !all[at + move]) return;
  event.preventDefault();
  press(all[at + move]);
});

function openList() {
  list = new EventSource("/api/v1/events");
  list.addEventListener("open", () => setLive("live"));
  list.addEventListener("runs", (message) => {
    setLive("live");
    const known = JSON.parse(message.data);
    showRuns(known);
    // The chosen run may have begun. The list may be too long to have it.
    const has = known.total > known.runs.length || known.runs.some((run) => run.id === chosen);
    if (chosen && !stream && has) choose();
  });
  list.addEventListener("error", () => {
    const over = list.readyState === EventSource.CLOSED;  // Refused: the browser does not try again.
    if (!over) return setLive("connection lost; trying again", true);
    setLive("not let in any more: make a new link with musterctl open", true);
    explainRefusal();
    waitForLeader();
  });
}

// A browser does not tell a page why a stream was refused.
async function explainRefusal() {
  try {
    if (!(await fetch("/api/v1/runs")).ok) return;
  } catch {
    return;
  }
  setLive("too many readers of events, such as open pages: trying again", true);
  clearTimeout(listTimer);
  listTimer = setTimeout(openList, LEADER_AGAIN_MS);
}

// A browser has six connections to a server, and each page uses two: hidden pages give theirs back.
document.addEventListener("visibilitychange", () => {
  clearTimeout(listTimer);
  list.close();
  stream?.close();
  stream = null;
  if (document.hidden) return setLive("");
  choose();
  openList();
});

// While this musterd stands by, asks again until it leads.
async function waitForLeader() {
  try {
    const reply = await fetch("/readyz");
    if (reply.ok && standsBy) location.reload();
    if (!reply.ok && (await reply.json()).error.code === "standing_by") {
      standsBy = true;
      setLive("this musterd stands by: open the page of the one that leads", true);
    }
  } catch {
    // The server does not answer at the moment. The next request may succeed.
  }
  if (standsBy) setTimeout(waitForLeader, LEADER_AGAIN_MS);
}

window.addEventListener("hashchange", choose);
openList();
choose();

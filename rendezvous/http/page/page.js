"use strict";
// Shows the data of /api/v1 live. Every text from the server is set through textContent, so that no text becomes HTML.

const TICK_MS = 5000;
const STILL_HERE_MS = 20_000;
const HUB_WITHIN_MS = 3000;
const FILTER_FROM = 20;

let chosen = "";      // The id of the chosen run.
let run = null;       // It, as the server sent it last.
let runs = null;      // The list, as the server sent it last.
let steps = null;     // Of the chosen run.
let clockAhead = 0;   // The server's clock minus this one's, in ms.
let lostAt = 0;       // When the connection was lost; 0: it is there.
let server = null;
let absence = "";     // Why there is nothing to see of the chosen run.

const serverNow = () => Date.now() + clockAhead;

// A time that stays right: "2 min ago", and UTC for those who point at it.
function timeOf(ms, show = "ago") {
  const element = make("time");
  element.dateTime = new Date(ms).toISOString();
  element.title = fullUtc(ms);
  element.dataset.show = show;
  tick(element);
  return element;
}
function tick(element) {
  const ms = Date.parse(element.dateTime);
  const seconds = (serverNow() - ms) / 1000;
  const texts = {span: () => span(Math.max(1, seconds)), short: () => ago(Math.max(2, seconds)).replace(" ago", ""), ago: () => ago(seconds), until: () => seconds < 0 ? `in ${span(-seconds)}` : "now"};
  setText(element, texts[element.dataset.show]());
}

// --- the list of runs ---

const GROUPS = ["Failed", "Not at work", "Running", "Ended"];

function entryLine(entry) {
  if (hasEnded(entry)) return entry.ended_at ? ["ended ", timeOf(Date.parse(entry.ended_at))] : ["ended"];
  const age = entry.began_at ? [" \u00b7 ", timeOf(Date.parse(entry.began_at), "short")] : [];
  return [`${nodesText(entry)} nodes`, ...age];
}

function runEntry(entry) {
  const item = document.createElement("li");
  const button = make("button");
  button.type = "button";
  button.dataset.id = entry.id;
  if (entry.id === chosen) button.setAttribute("aria-current", "true");
  const name = make("b");
  const sign = make("span", RUN_SIGNS[entry.state] ?? "?", RUN_TONES[entry.state]);
  sign.setAttribute("aria-hidden", "true");
  name.append(sign, ` ${entry.id}`);
  const line = document.createElement("small");
  line.append(make("span", runWords(entry.state), RUN_TONES[entry.state]), " \u00b7 ", ...entryLine(entry));
  button.append(name, line);
  button.addEventListener("click", () => { location.hash = encodeURIComponent(entry.id); });
  item.append(button);
  return item;
}

function showRuns() {
  if (!runs) return;
  const focused = document.activeElement?.closest?.("#runs button")?.dataset.id;
  const filter = by("filter").value.toLowerCase();
  const sorted = [...runs.runs].sort(byUrgency);
  const wanted = sorted.filter((entry) => entry.id.toLowerCase().includes(filter));
  const groups = [];
  for (const [i, title] of GROUPS.entries()) {
    const own = wanted.filter((entry) => urgency(entry) === i);
    if (!own.length) continue;
    const list = document.createElement("ul");
    list.append(...own.map(runEntry));
    if (sorted.length > 1) groups.push(make("h3", title));
    groups.push(list);
  }
  by("runs").replaceChildren(...groups);
  by("filter-label").hidden = sorted.length < FILTER_FROM && !filter;
  by("total").textContent = runs.total > runs.runs.length ? `${runs.runs.length} of ${runs.total}` : String(runs.total);
  by("no-runs").hidden = runs.total > 0;
  if (focused) buttonOf(focused)?.focus();
  // The one that needs attention most is what people have come for.
  if (!chosen && sorted.length) location.replace(`#${encodeURIComponent(sorted[0].id)}`);
  showWhich();
}

function buttonOf(id) {
  return [...by("runs").querySelectorAll("button")].find((button) => button.dataset.id === id);
}

// --- the chosen run ---

function fact(name, ...value) {
  const box = document.createElement("div");
  const text = document.createElement("dd");
  text.append(...value);
  box.append(make("dt", name), text);
  return box;
}

function showFacts() {
  const facts = [];
  const took = run.began_at && run.ended_at ? (Date.parse(run.ended_at) - Date.parse(run.began_at)) / 1000 : null;
  if (!hasEnded(run)) facts.push(fact("Nodes", needs(run) ? `${nodesText(run)}` : nodesText(run)));
  const found = stepsOf(nodes);
  if (found) {
    const slowest = found.least < found.most && found.rank !== null ? make("small", ` slowest: rank ${found.rank}`) : "";
    facts.push(fact("Step", stepsText(found), slowest));
  }
  facts.push(fact("Restarts", budgetsText(run) || restartsText(run)));
  if (fruitlessText(run)) facts.push(fact("Without progress", fruitlessText(run)));
  if (run.state === "running" && isNumber(run.up_seconds))
    facts.push(fact("Up since", timeOf(Date.parse(run.at) - 1000 * run.up_seconds)));
  if (hasEnded(run)) {
    if (run.ended_at) facts.push(fact("Ended", timeOf(Date.parse(run.ended_at))));
    if (took !== null) facts.push(fact("Ran for", span(took)));
  } else if (run.began_at) facts.push(fact("Began", timeOf(Date.parse(run.began_at))));
  const workers = workersText(nodes);
  if (workers) facts.push(fact("Workers", workers));
  if (run.last_call_seconds !== null && run.lacking === 0) facts.push(fact("Begins at the latest in", span(run.last_call_seconds)));
  by("facts").replaceChildren(...facts);
}

function showBanner() {
  const banner = bannerOf(run);
  const failed = run.state === "failed" && run.first_failure;
  by("banner").hidden = !banner;
  if (!banner) return;
  by("banner").className = banner.tone;
  // Of a failed run the headline is what failed.
  const fatal = failed && !isCured(run, run.first_failure) ? failureWords(run.first_failure, run.first_failure_report).title : "";
  const title = banner.title || fatal || banner.lines[0];
  by("banner-title").replaceChildren(title, ...(banner.since ? [", gone for ", timeOf(banner.since, "span")] : []),
    ...(banner.until ? [" ", timeOf(banner.until, "until")] : []));
  setText(by("reason"), banner.lines.filter((line) => line && line !== title).join(banner.until ? " \u00b7 " : " "));
  const at = Date.parse(run.at);
  const lines = run.missing.map((node) => {
    const {name, rest, since} = missingText(node, at);
    const item = document.createElement("li");
    item.append(make("b", name), ` ${rest}`);
    if (since && !banner.since) item.append(", gone for ", timeOf(since, "span"));
    return item;
  });
  if (run.missing_total > run.missing.length) lines.push(make("li", `and ${run.missing_total - run.missing.length} more`));
  const others = run.lacking - run.missing_total;  // The title has the number if none is missing by name.
  if (run.missing_total > 0 && others > 0) lines.push(make("li", `and ${others} more must come`));
  by("missing-list").replaceChildren(...lines);
}

function showFailure() {
  const failure = run.first_failure;
  by("failure").hidden = !failure;
  if (!failure) return;
  const report = run.first_failure_report;
  const cured = isCured(run, failure);
  const {title, from, line} = failureWords(failure, report);
  const later = run.events.filter((event) => event.number > failure.number &&
    (event.kind === "node_lost" || (event.kind === "round_restarts" && event.cause === "workers_failed"))).length;
  by("failure-sign").className = cured ? "calm" : "bad";
  const cost = run.restarts_used ? `, ${counted(run.restarts_used, "restart")} used` : "";
  // The banner of a failed run has the reason already.
  const words = cured ? [`cured${cost}`, later ? `${later} later, see the history` : ""] : [line];
  setText(by("failure-title"), cured || by("banner").hidden || by("banner-title").textContent !== title ? `${from}${title}` : "First failure");
  by("failure-who").replaceChildren(...[...words.filter(Boolean).join(" \u00b7 "), " \u00b7 "].filter((part) => words.some(Boolean) && part),
    timeOf(Date.parse(failure.at)));
  setText(by("failure-line"), cured ? line : "");
  const because = report?.because ?? "";
  by("failure-because").hidden = !because;
  setText(by("failure-because"), because);
  setText(by("failure-text"), reportText(report) || failure.text);
  setCommand(by("failure-command"), musterctl(location.host, "why", chosen));
  by("failure").classList.toggle("cured", cured);
  // What is new opens or closes; afterwards it is as the reader has left it.
  const key = `${chosen} ${failure.number} ${cured}`;
  if (by("failure").dataset.key === key) return;
  by("failure").dataset.key = key;
  by("failure").open = !cured;
}

// The ended run before this one that had the same id.
function showPrevious() {
  const before = run.previous;
  by("previous").hidden = !before;
  if (!before) return;
  const reason = headlineOf(before.first_failure_report) || before.reason;
  const when = before.ended_at ? ["ended ", timeOf(Date.parse(before.ended_at)), ": "] : [];
  by("previous-title").replaceChildren("The run before, of the same id, ", ...when,
    make("b", before.state, RUN_TONES[before.state]), reason ? ` \u00b7 ${reason}` : "");
  setText(by("previous-text"), reportText(before.first_failure_report) || before.first_failure?.text || before.reason || before.state);
}

function historyEntry(row) {
  const item = document.createElement("li");
  const at = Date.parse(row.at);
  const stamp = make("span", utc(at, serverNow()), "stamp");
  const text = make("span");
  if (row.title) text.append(make("b", row.title, row.tone));
  text.append(row.words);
  item.append(stamp, timeOf(at), text);
  return item;
}

function showSpeed() {
  const any = steps?.rates.length > 0;
  by("speed").hidden = !any;
  if (!any) return;
  const last = steps.rates.at(-1);
  const rank = last.slowest_rank === null ? "" : ` (rank ${last.slowest_rank})`;
  const key = (tone, text) => {
    const part = make("span", undefined, "key");
    const mark = make("span", undefined, `mark ${tone}`);
    mark.setAttribute("aria-hidden", "true");
    part.append(mark, text);
    return part;
  };
  by("speed-legend").replaceChildren(key("mean", `the run: ${rateText(last.steps_per_second)}`),
    key("slowest", `its slowest rank: ${rateText(last.slowest)}${rank}`));
  const restarts = run.events.filter((event) => event.kind === "round_restarts").map((event) => Date.parse(event.at));
  const until = hasEnded(run) && run.ended_at ? Date.parse(run.ended_at) : serverNow();
  drawPlot(by("plot"), steps, restarts, until, Math.max(260, by("plot").clientWidth));
}

const ICON_COLOURS = {good: "#00664b", calm: "#0058a3", wait: "#9a6800", bad: "#b03a00", "": "#565d66"};
function showIcon(tone) {
  const icon = document.querySelector("link[rel=icon]");
  if (icon.dataset.tone === tone) return;
  icon.dataset.tone = tone;
  icon.href = "data:image/svg+xml," + encodeURIComponent('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">' +
    `<rect width="16" height="16" rx="3" fill="${ICON_COLOURS[tone]}"/>` +
    '<path d="M3 12V4h2l3 4 3-4h2v8h-2V7.500L8 11 5 7.500V12z" fill="#fff"/></svg>');
}

function showTitle() {
  const state = run ? `${RUN_SIGNS[run.state] ?? ""} ${lostAt ? "was " : ""}${runWords(run.state)} \u00b7 ${run.id} \u00b7 ` : "";
  document.title = `${state}${server?.host || "muster"} \u00b7 muster`;
  showIcon(lostAt || !run ? "" : RUN_TONES[run.state]);
}

function showRun() {
  setText(by("id"), run.id);
  by("state").className = `badge ${RUN_TONES[run.state] ?? ""}`;
  const state = `${lostAt ? "was " : ""}${runWords(run.state)}`;
  if (by("state").textContent && by("state").textContent !== state && !lostAt && by("id").dataset.told === run.id)
    announce(`${run.id}: ${state}`);
  by("id").dataset.told = run.id;
  setText(by("state"), state);
  showTitle();
  showFacts();
  showBanner();
  showFailure();
  showPrevious();
  showSpeed();
  by("history").replaceChildren(...groupHistory(run.events).map(historyEntry));
}

// Which of: the run, why there is none, or what to do where there is no run at all.
function showWhich() {
  const isEmpty = runs?.total === 0 && !chosen;
  by("empty").hidden = !isEmpty;
  by("chosen").hidden = !run;
  by("none").hidden = Boolean(run) || isEmpty;
  document.body.classList.toggle("no-run", isEmpty);
  if (isEmpty) {
    const host = server?.host || location.hostname;
    setCommand(by("empty-command"), `muster --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=${host}:${server?.port ?? 29400} --rdzv-id=job-17 train.py`);
  }
  if (!run) setText(by("none"), absence || (chosen ? "Waiting for this run." : "Waiting for the list of runs."));
}

// --- the connection ---

function setLive(text) {
  lostAt = text ? lostAt || Date.now() : 0;
  setText(by("live"), text ? "not up to date" : "live");
  by("live").classList.toggle("lost", Boolean(text));
  document.body.classList.toggle("stale", Boolean(text));
  by("lost").hidden = !text;
  if (text) {
    const known = run ?? runs;
    const since = known ? ` What you see is as of ${utc(lostAt + clockAhead, serverNow())} UTC.` : "";
    setText(by("lost"), `${text[0].toUpperCase()}${text.slice(1)}.${since}`);
  }
  if (run) showRun();
  else showTitle();
}

const HANDLERS = {
  live: () => {
    setLive("");
    if (!server) fetchServer();
  },
  lost: (text) => setLive(text),
  runs: (text) => {
    runs = JSON.parse(text);
    clockAhead = Date.parse(runs.at) - Date.now();
    showRuns();
  },
  run: (text) => {
    run = JSON.parse(text);
    absence = "";
    clockAhead = Date.parse(run.at) - Date.now();
    showWhich();
    showRun();
    showNodes();
  },
  forgotten: () => {
    absence = "musterd does not know this run: it has not begun, or is forgotten.";
    if (!run) return showWhich();
    by("banner").hidden = false;
    setText(by("banner-title"), "musterd has forgotten this run");
    setText(by("reason"), "Nobody was in it any more.");
  },
  refused: (why) => {
    absence = why;
    showWhich();
  },
  nodes: (text) => {
    nodes = JSON.parse(text).nodes;
    haveNodes = true;
    showNodes();
    if (run) showFacts();
  },
  steps: (text) => {
    steps = JSON.parse(text);
    if (run) showSpeed();
  },
};

function receive({kind, run: of, data}) {
  if (of === undefined || of === chosen) HANDLERS[kind](data);
}

let tellHub = null;
let ownHub = null;
function useOwnHub() {
  ownHub = new Hub();
  tellHub = (wanted) => ownHub.show(receive, wanted);
  tellWanted();
}
function tellWanted() {
  tellHub?.(document.hidden ? null : chosen);
}
function connectHub() {
  if (typeof SharedWorker === "undefined") return useOwnHub();
  let answered = false;
  const worker = new SharedWorker("/hub.js", `muster ${HUB_PROTOCOL}`);
  const giveUp = () => {
    if (answered || ownHub) return;
    worker.port.close();
    useOwnHub();
  };
  worker.onerror = giveUp;  // For example, the browser is not let in any more.
  worker.port.onmessage = ({data}) => {
    answered = true;
    if (!ownHub) receive(data);
  };
  setTimeout(giveUp, HUB_WITHIN_MS);
  tellHub = (wanted) => worker.port.postMessage({run: wanted});
  tellWanted();
}

async function fetchServer() {
  try {
    const reply = await fetch("/api/v1/server");
    if (!reply.ok) return;
    server = await reply.json();
    setText(by("server"), `${server.host} \u00b7 ${server.version}`);
    showTitle();
    showWhich();
  } catch {
    // The page does without: the next time that it is live it asks again.
  }
}

// --- what is chosen ---

function choose() {
  let id = location.hash.slice(1);
  try {
    id = decodeURIComponent(id);
  } catch {
    // Not by this page: it is what it is.
  }
  if (id === "run" || (id === chosen && run)) return;  // "run": the link that skips to the run.
  chosen = id;
  absence = "";
  pressed = "";
  run = null;
  steps = null;
  nodes = [];
  haveNodes = false;
  nodeStates = new Map();
  by("id").dataset.told = "";
  showNodes();
  showTitle();
  showRuns();
  showWhich();
  tellWanted();
}

window.addEventListener("hashchange", choose);
document.addEventListener("visibilitychange", tellWanted);
window.addEventListener("pagehide", () => tellHub?.(null));
window.addEventListener("pageshow", tellWanted);
setInterval(() => {
  for (const element of document.querySelectorAll("time")) tick(element);
}, TICK_MS);
setInterval(tellWanted, STILL_HERE_MS);
by("filter").addEventListener("input", showRuns);
by("help-button").addEventListener("click", () => by("help").showModal());
new ResizeObserver(() => { if (run) showSpeed(); }).observe(by("plot"));
choose();
connectHub();

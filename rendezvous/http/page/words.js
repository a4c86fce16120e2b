"use strict";
// Texts, times and decisions of the page. Nothing here touches the document, the network or the clock.

const RUN_WORDS = {
  gathering: "waiting for nodes", recovering: "coming back", preparing: "starting", empty: "no nodes",
};
const RUN_TONES = {
  running: "good", succeeded: "calm", failed: "bad", restarting: "wait", gathering: "wait", preparing: "wait",
  recovering: "wait", closed: "calm", empty: "calm", preempted: "wait",
};
const RUN_SIGNS = {
  running: "\u25cf", succeeded: "\u2713", failed: "\u2715", restarting: "\u21bb", gathering: "\u25d4",
  preparing: "\u25d0", recovering: "\u21bb", closed: "\u25a0", empty: "\u25cb", preempted: "\u23cf",
};
const NODE_SIGNS = {
  working: ["\u25cf", "good"], finished: ["\u2713", "calm"], joined: ["\u25d0", "wait"], preparing: ["\u25d0", "wait"],
  waiting: ["\u25d4", "wait"], resuming: ["\u21bb", "wait"], restarting: ["\u21bb", "wait"], spare: ["\u25cb", "calm"],
  absent: ["\u2715", "bad"], kept_out: ["\u2298", "wait"], gone: ["\u2715", "bad"], lacking: ["?", "wait"],
};
const NODE_WORDS = {kept_out: "kept out", absent: "no connection", lacking: "not here yet"};
const EVENT_WORDS = {
  run_began: "began", node_joined: "node joined", node_left: "node left", node_lost: "node lost",
  round_complete: "round complete", round_restarts: "restart", round_resumed: "round resumed",
  round_not_resumed: "round not resumed", run_closed: "closed", run_succeeded: "succeeded", run_failed: "failed",
  run_broken: "broken", node_drained: "node drained", node_excluded: "node excluded", node_allowed: "node allowed",
};
const EVENT_TONES = {
  node_lost: "bad", run_failed: "bad", run_broken: "bad", round_restarts: "wait", round_not_resumed: "wait",
  node_drained: "wait", node_excluded: "wait", round_complete: "good", round_resumed: "good", run_succeeded: "calm",
};
const CAUSE_WORDS = {
  workers_failed: "a worker failed", node_lost: "a node was lost", node_left: "a node left",
  node_joined: "a node joined", requested: "asked for",
};
const ATTENTION_SECONDS = 12 * 3600;  // A failure of the last night is not "ended" yet.
const MAX_CARDS = 16;                 // More nodes are shown as small chips.

const isNumber = (value) => typeof value === "number";
const hasEnded = (run) => ["failed", "succeeded", "preempted"].includes(run.state);
const runWords = (state) => RUN_WORDS[state] ?? state.replaceAll("_", " ");
const nodeWords = (state) => NODE_WORDS[state] ?? state.replaceAll("_", " ");
const counted = (count, word) => `${count} ${count === 1 ? word : word + (word.endsWith("s") ? "es" : "s")}`;

// "12 s", "3 min", "2 h 5 min", "3 d 4 h"
function span(seconds) {
  if (!isNumber(seconds)) return "";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}

function ago(seconds) {
  if (seconds < 2) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

// "06:35:14", with the date if it is not the day of `now`: histories reach back for weeks.
function utc(ms, now) {
  const text = new Date(ms).toISOString();
  const time = text.slice(11, 19);
  return text.slice(0, 10) === new Date(now).toISOString().slice(0, 10) ? time : `${text.slice(0, 10)} ${time}`;
}
const fullUtc = (ms) => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;

// "3", or "2 to 4"; empty while only torchrun nodes are in the run, which do not tell.
function needs(run) {
  if (run.min_nodes === null) return "";
  return run.min_nodes === run.max_nodes ? String(run.min_nodes) : `${run.min_nodes}\u2013${run.max_nodes}`;
}
function nodesText(run) {
  return needs(run) ? `${run.nodes_in_round} of ${needs(run)}` : String(run.nodes_in_round);
}
function restartsText(run) {
  return run.restarts_allowed === null ? String(run.restarts_used) : `${run.restarts_used} of ${run.restarts_allowed}`;
}
// "failures 1 of 3, hangs 0 of 2"; empty without --restart-policy.
function budgetsText(run) {
  const budgets = Object.entries(run.restart_budgets ?? {}).filter(([, budget]) => budget);
  return budgets.map(([name, {used, allowed}]) => `${name} ${used} of ${allowed}`).join(", ");
}
function fruitlessText(run) {
  const attempts = run.attempts_without_progress ?? 0;
  return attempts > 0 ? `${counted(attempts, "attempt")} in a row` : "";
}

// What needs attention comes first: 0: failed, 1: not at work, 2: running, 3: ended.
function urgency(run) {
  if (run.state === "failed" && !(run.ended_seconds > ATTENTION_SECONDS)) return 0;
  if (hasEnded(run)) return 3;
  return run.state === "running" ? 2 : 1;
}
function byUrgency(a, b) {
  const first = urgency(a) - urgency(b);
  if (first) return first;
  if (hasEnded(a) && hasEnded(b)) return (a.ended_seconds ?? Infinity) < (b.ended_seconds ?? Infinity) ? -1 : 1;
  return a.id < b.id ? -1 : 1;
}

// A word for a POSIX shell.
function quoted(word) {
  return /^[\w.,:@%+=/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
// `where`: location.host. musterctl asks localhost:9400 of itself.
function musterctl(where, ...words) {
  const endpoint = where === "localhost:9400" || where === "127.0.0.1:9400" ? [] : [`--endpoint=${where}`];
  return ["musterctl", ...endpoint, ...words.map((word) => quoted(String(word)))].join(" ");
}

// --- failures ---

const ERROR_LINE = /^(?:\[?rank\d+\]?: ?)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Timeout|Warning|Fault)(?::.*)?)$/;
const linesOf = (text) => text.split("\n").map((line) => line.trimEnd()).filter((line) => line.trim());

// The line that says why: the last one of the traceback.
function headlineOf(report) {
  if (!report) return "";
  if (report.because) return linesOf(report.because)[0] ?? "";
  const said = linesOf(report.stderr_end);
  const error = said.findLast((line) => ERROR_LINE.test(line));
  if (error) return ERROR_LINE.exec(error)[1];
  const message = linesOf(report.message);
  const named = message.find((line) => ERROR_LINE.test(line)) ?? message.at(-1);
  if (named) return named;
  return report.exit.startsWith("exited with") ? (said.at(-1) ?? "").trim() : "";
}

// What is known of a failed worker, as lines.
function reportText(report) {
  if (!report) return "";
  const lines = [`rank ${report.rank} (local rank ${report.local_rank}, pid ${report.pid}) ${report.exit}`];
  for (const part of [report.message, report.stderr_end]) if (part) lines.push("", part.trimEnd());
  return lines.join("\n");
}

function who(event) {
  if (!event.node) return "";
  return event.group_rank === null ? `node ${event.node}` : `node ${event.group_rank} (${event.node})`;
}

// {title, from, line}: the reason, which rank or node it comes from, and what else is known. `event`: a failure among the
// run's events.
function failureWords(event, report) {
  const node = who(event);
  if (event.kind === "node_lost")
    return {title: `${event.group_rank === null ? "a node" : `node ${event.group_rank}`} was lost: ${event.text}`, from: "", line: node};
  const text = event.text || EVENT_WORDS[event.kind] || event.kind;
  if (!report) return {title: text, from: "", line: node};
  const reason = headlineOf(report);
  const rank = `rank ${report.rank} ${report.exit}`;
  return {title: reason || rank, from: reason ? `rank ${report.rank}: ` : "", line: [reason ? rank : "", node].filter(Boolean).join(" \u00b7 ")};
}

// Whether the failure still stops the run: no round has been complete since then.
function isCured(run, failure) {
  if (run.state === "failed") {
    const end = run.events.findLast((event) => event.kind === "run_failed");
    return Boolean(end) && failure.round < end.round && failure.kind !== "run_failed";
  }
  if (run.state === "running" || run.state === "succeeded") return true;
  return run.events.some((event) => event.kind === "round_complete" && event.number > failure.number);
}

// --- what the run waits for ---

// `missing` of the run, with the time of the view.
function missingText(node, at) {
  const name = node.group_rank === null ? `node ${node.name}` : `node ${node.group_rank}`;
  if (node.expected) return {name, rest: `(${node.name}) is alive and about to come back`};
  return {name, rest: `(${node.name}): ${node.why}`, since: isNumber(node.since_seconds) ? at - 1000 * node.since_seconds : null};
}

// A few of the names in a list, which may be shorter than `total`.
function someNames(names, total) {
  const few = names.slice(0, 4).join(", ");
  return total > Math.min(4, names.length) ? `${few} and ${total - Math.min(4, names.length)} more` : few;
}

// The banner of a run whose nodes were told that some of them will go.
function noticeBanner(notice) {
  const {doomed_total: going, silent_total: silent, saved_total: saved} = notice;
  const after = notice.follow === "stop" ? "the job stops" : "the round restarts without them";
  return {tone: "wait", title: `${going === 1 ? "A node" : counted(going, "node")} will go`, until: Date.parse(notice.deadline),
    lines: [someNames(notice.doomed, going), notice.reason,
      `${saved} of ${counted(saved + silent, "node")} ${saved + silent === 1 ? "has" : "have"} saved` +
        (silent ? `; not yet: ${someNames(notice.silent, silent)}` : ""), `when all have, or then, ${after}`]};
}

// The banner: {tone, title, lines, since, until}; null: the run is at work and nothing is missing.
function bannerOf(run) {
  if (run.notice && !hasEnded(run)) return noticeBanner(run.notice);
  const gone = run.missing.filter((node) => !node.expected);
  const outside = gone.length + (run.missing_total - run.missing.length);
  if (run.state === "failed") return {tone: "bad", title: "", lines: [run.outcome?.why || run.reason]};
  if (run.state === "preempted") return {tone: "wait", title: "The job was stopped at a notice", lines: [run.outcome?.why || run.reason]};
  if (run.state === "succeeded") return {tone: "calm", title: "All workers have succeeded", lines: []};
  if (run.state === "running" && outside === 0) return null;
  const lines = [run.reason];
  let title = "";
  let since = null;
  if (outside > 0) {
    const first = gone[0];
    if (outside === 1 && first) since = missingText(first, Date.parse(run.at)).since;
    const which = outside === 1 && first ? `: ${first.group_rank === null ? "" : `node ${first.group_rank}, `}${first.address}` : "";
    title = run.state === "running" ? `Runs without ${counted(outside, "node")}${which}` : `Waits for ${counted(outside, "node")}${which}`;
  } else if (run.lacking > 0) title = `Waits for ${run.lacking} more ${run.lacking === 1 ? "node" : "nodes"}`;
  else if (run.state === "recovering") title = "musterd was started again: the nodes are coming back";
  else if (run.state === "restarting") title = "The workers are being restarted";
  else if (run.state === "preparing") title = "The round has its nodes, and starts";
  else if (run.state === "closed") title = "A torchrun node has closed the run";
  else if (run.state === "empty") title = "No node is in the run";
  else title = "Waits for more nodes, for a short time";
  return {tone: RUN_TONES[run.state] === "good" ? "wait" : RUN_TONES[run.state], title, lines, since};
}

// --- the history: one line for what belongs together ---

function joinedWords(joins) {
  const total = joins.reduce((sum, event) => sum + 1 + (event.like_events ?? 0), 0);
  const names = joins.slice(0, 3).map((event) => event.node).join(", ");
  return `${counted(total, "node")} joined: ${names}${total > 3 ? ", \u2026" : ""}`;
}

function isOneLoss(a, b) {
  const kinds = [a.kind, b.kind].sort().join();
  return kinds === "node_lost,round_restarts" && a.node === b.node && (a.cause ?? b.cause) === "node_lost";
}

// Rows, the newest first: {at, tone, title, words}. `events`: the oldest first.
function groupHistory(events) {
  const rows = [];
  const known = new Set();
  let joins = [];
  let isFirstRound = true;
  const row = (event, title, words) =>
    rows.push({at: event.at, tone: EVENT_TONES[event.kind] ?? "", title, words: words.filter(Boolean).join(" \u00b7 "), last: event});
  const flush = () => {
    if (joins.length) row(joins.at(-1), "", [joinedWords(joins)]);
    joins = [];
  };
  for (const event of events) {
    const before = rows.at(-1);
    if (event.kind === "node_joined") {
      joins.push(event);
    } else if (event.kind === "round_complete") {
      const fresh = joins.filter((join) => !known.has(join.node)).map((join) => join.node);
      for (const join of joins) known.add(join.node);
      joins = [];
      const size = /^\d+/.exec(event.text)?.[0];
      const news = isFirstRound || !fresh.length ? "" : ` (${fresh.length > 3 ? fresh.length : fresh.join(", ")} new)`;
      isFirstRound = false;
      row(event, `round ${event.round} complete`, [isNumber(event.took_seconds) ? `after ${span(event.took_seconds)}` : "",
        size ? counted(Number(size), "node") + news : event.text]);
    } else if (before && !joins.length && isOneLoss(before.last, event)) {
      // The loss and the restart that follows from it, in either order.
      rows.pop();
      const lost = event.kind === "node_lost" ? event : before.last;
      row(lost, EVENT_WORDS.node_lost, [who(lost), lost.text, "all workers restart"]);
      rows.at(-1).last = {};
    } else {
      flush();
      const cause = event.kind === "round_restarts" ? CAUSE_WORDS[event.cause] ?? event.cause : "";
      row(event, EVENT_WORDS[event.kind] ?? event.kind.replaceAll("_", " "),
        [who(event), event.text || cause, event.like_events ? `and ${event.like_events} more of this kind` : ""]);
    }
  }
  flush();
  return rows.reverse();
}

// --- nodes ---

// The nodes by rank, with a place for each that is missing. `lacking` ones have no name.
function nodesWithGaps(nodes, run) {
  const here = new Set(nodes.map((node) => node.name));
  const all = [...nodes];
  for (const node of run?.missing ?? [])
    if (!node.expected && !here.has(node.name)) all.push({...node, state: "gone", gone: true});
  const few = all.length + (run?.lacking ?? 0) <= MAX_CARDS;
  const gone = all.length - nodes.length;
  if (run && few)
    for (let i = gone; i < run.lacking; ++i) all.push({name: "", state: "lacking", group_rank: null, gone: true});
  const rank = (node) => node.group_rank ?? (node.state === "lacking" ? Infinity : Number.MAX_VALUE);
  return all.sort((a, b) => rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0);
}

function ranksText(node) {
  if (!isNumber(node.local_world_size)) return "";
  if (!isNumber(node.first_rank)) return counted(node.local_world_size, "worker");
  const last = node.first_rank + node.local_world_size - 1;
  return last > node.first_rank ? `ranks ${node.first_rank}\u2013${last}` : `rank ${node.first_rank}`;
}

// {least, most, rank}: the steps of all workers, and the rank with the lowest one; null: none has told a step.
function stepsOf(nodes) {
  let found = null;
  for (const node of nodes)
    for (const worker of node.report?.workers ?? []) {
      if (worker.step === null) continue;
      if (!found) found = {least: worker.step, most: worker.step, rank: worker.rank};
      else if (worker.step < found.least) Object.assign(found, {least: worker.step, rank: worker.rank});
      found.most = Math.max(found.most, worker.step);
    }
  return found;
}
const stepsText = (steps) => steps.least === steps.most ? String(steps.least) : `${steps.least}\u2013${steps.most}`;

// "6 running, 1 failed"
function workersText(nodes) {
  const counts = {};
  for (const node of nodes)
    for (const worker of node.report?.workers ?? []) counts[worker.state] = (counts[worker.state] ?? 0) + 1;
  return Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ");
}

// "0.25", "3.2", "157"
function rateText(rate) {
  if (rate === 0) return "0";
  return rate >= 100 ? String(Math.round(rate)) : rate >= 1 ? rate.toFixed(1) : rate.toPrecision(2);
}

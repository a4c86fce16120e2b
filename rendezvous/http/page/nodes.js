"use strict";
// The nodes of the chosen run: cards if they are few, chips if they are many; and a table of the chosen node.

let nodes = [];    // As the server sent them last.
let haveNodes = false;  // Whether it has sent them.
let shown = [];    // The same with a place for each missing node, by rank.
let pressed = "";  // The name of the chosen node.
let nodeStates = new Map();  // By name, as they were announced.

function nodeName(node) {
  if (node.state === "lacking") return "a node that has not come yet";
  return node.group_rank === null ? node.name : `node ${node.group_rank}`;
}

// Whether it will go, and whether it has saved because a node of its round will.
function noticeWords(node) {
  const going = node.notice ? node.notice.seconds > 0 ? `goes in ${span(node.notice.seconds)}` : "goes now" : "";
  return [going, node.saved ? "has saved" : ""].filter(Boolean).join(", ");
}

function cardLines(node) {
  if (node.state === "lacking") return ["not here yet"];
  const steps = stepsOf([node]);
  const place = [ranksText(node), steps ? `step ${stepsText(steps)}` : ""].filter(Boolean).join(" \u00b7 ");
  const shares = shown.filter((one) => one.address === node.address).length > 1;
  const state = node.state === "working" && !node.kept_out ? "" : nodeWords(node.kept_out ?? node.state);
  return [shares ? node.name : node.address, place, [state, noticeWords(node)].filter(Boolean).join(", ")].filter(Boolean);
}

function fillNode(button, node, cards) {
  const [sign, tone] = NODE_SIGNS[node.state] ?? ["?", "bad"];
  const lines = cards ? cardLines(node) : [];
  const content = [`${sign} ${node.group_rank ?? "\u2013"}`, ...lines].join("\n");
  if (button.dataset.content !== content) {
    button.dataset.content = content;
    button.replaceChildren(make("b", `${sign} ${node.group_rank ?? "\u2013"}`), ...lines.map((line) => make("span", line)));
  }
  const look = `${tone}${node.gone ? " gap" : ""}`;
  if (button.className !== look) button.className = look;
  button.dataset.name = node.name;
  setAttribute(button, "aria-label", [nodeName(node), nodeWords(node.state), ...lines].join(", "));
  setAttribute(button, "aria-pressed", String(node.name !== "" && node.name === pressed));
  button.disabled = node.state === "lacking";
}

function showNodes() {
  shown = haveNodes ? nodesWithGaps(nodes, run) : [];
  const cards = shown.length <= MAX_CARDS;
  const grid = by("nodes");
  grid.classList.toggle("cards", cards);
  while (grid.childElementCount > shown.length) grid.lastElementChild.remove();
  const fresh = document.createDocumentFragment();
  for (let i = grid.childElementCount; i < shown.length; ++i) {
    const button = document.createElement("button");
    button.type = "button";
    button.tabIndex = i === 0 ? 0 : -1;
    fresh.append(button);
  }
  grid.append(fresh);
  const counts = {};
  let i = 0;
  for (const button of grid.children) {
    const node = shown[i++];
    counts[node.state] = (counts[node.state] ?? 0) + 1;
    fillNode(button, node, cards);
  }
  grid.hidden = shown.length === 0;
  by("node-counts").textContent = shown.length ? String(nodes.length) : haveNodes ? "none are in the run now" : "";
  by("node-hint").hidden = nodes.length === 0 || pressed !== "";
  const legend = Object.entries(counts).map(([state, count]) => `${NODE_SIGNS[state]?.[0] ?? "?"} ${count} ${nodeWords(state)}`);
  if (by("legend").dataset.content !== legend.join()) {
    by("legend").dataset.content = legend.join();
    by("legend").replaceChildren(...Object.entries(counts).map(([state, count]) => {
      const [sign, tone] = NODE_SIGNS[state] ?? ["?", "bad"];
      const item = document.createElement("li");
      item.append(make("span", sign, tone), ` ${count} ${nodeWords(state)}`);
      return item;
    }));
  }
  showNode(shown.find((one) => pressed && one.name === pressed));
  announceNodes();
}

// A screen reader hears which nodes were lost, and which have come back.
function announceNodes() {
  const states = new Map(shown.filter((node) => node.name).map((node) => [node.name, node]));
  const said = [];
  for (const [name, node] of states) {
    // A lost node leaves the list of nodes, and is among the missing ones a moment later.
    const before = nodeStates.get(name)?.state ?? (nodeStates.size && node.gone ? "unknown" : "");
    if (!before || before === node.state) continue;
    if (["absent", "gone", "kept_out"].includes(node.state) || ["absent", "gone"].includes(before))
      said.push(`${nodeName(node)}: ${nodeWords(node.state)}`);
  }
  nodeStates = states;
  if (said.length) announce(said.length > 3 ? `${said.length} nodes have changed: ${said[0]}` : said.join(", "));
}

// --- the chosen node ---

function nodeFacts(node) {
  if (node.gone) return [`gone: ${node.why}`, node.name];
  const parts = [nodeWords(node.state), ranksText(node)];
  if (node.absent_seconds !== null) parts.push(`without a connection for ${span(node.absent_seconds)}`);
  else if (node.silent_seconds !== null) parts.push(`last heard ${ago(node.silent_seconds)}`);
  if (node.spare) parts.push("a spare");
  if (node.kept_out) parts.push(`${node.kept_out} by an operator`);
  parts.push(noticeWords(node), node.notice?.reason ?? "");
  const {failures, losses} = node.strikes;
  const struck = [failures ? counted(failures, "failure") : "", losses ? counted(losses, "loss") : ""].filter(Boolean);
  if (struck.length) parts.push(`strikes of its host: ${struck.join(", ")}`);
  if (node.report?.starts > 1) parts.push(`its workers were started ${node.report.starts} times`);
  if (node.report?.zygote_bytes) parts.push(`zygote: ${(node.report.zygote_bytes / 1048576).toFixed(0)} MiB`);
  if (node.report?.failure) parts.push(`last failure: rank ${node.report.failure.rank} ${node.report.failure.exit}`);
  parts.push(node.kind === "torchrun" ? "a torchrun node, which reports no workers" : "", `${node.name}, agent's pid ${node.pid}`);
  return parts.filter(Boolean);
}

function workerRow(worker) {
  const row = document.createElement("tr");
  for (let i = 0; i < 4; ++i) row.append(document.createElement("td"));
  const cell = document.createElement("td");
  cell.className = "command";
  if (worker.rank !== null) cell.append(...commandParts(musterctl(location.host, "logs", chosen, worker.rank, "-f")));
  row.append(cell);
  return row;
}

function fillWorker(row, worker) {
  const pace = worker.step === null ? "" :
    `${worker.step}${worker.progress_seconds > 30 ? `, ${ago(worker.progress_seconds)}` : ""}`;
  const texts = [String(worker.rank ?? `local ${worker.local_rank}`), String(worker.pid || ""),
    worker.state === "failed" ? `failed (${worker.exit_code})` : worker.state, pace];
  texts.forEach((text, i) => setText(row.cells[i], text));
  row.cells[2].className = worker.state === "failed" ? "bad" : "";
}

function showNode(node) {
  by("node").hidden = !node;
  if (!node) return;
  setText(by("node-title"), node.name === nodeName(node) ? node.name : `${nodeName(node)}, ${node.address}`);
  setText(by("node-facts"), nodeFacts(node).join(" \u00b7 "));
  const workers = node.report?.workers ?? [];
  by("workers-box").hidden = workers.length === 0;
  const body = by("workers").tBodies[0];
  // The rows are made again only when others are needed: a focused button must stay.
  const key = `${node.name} ${workers.map((worker) => worker.rank ?? `-${worker.local_rank}`).join()}`;
  if (body.dataset.key !== key) {
    body.dataset.key = key;
    body.replaceChildren(...workers.map(workerRow));
  }
  workers.forEach((worker, i) => fillWorker(body.rows[i], worker));
  setCommand(by("drain-command"), node.gone || node.kind === "torchrun" || hasEnded(run ?? {}) ? "" :
    node.kept_out ? musterctl(location.host, "allow", chosen, node.name) : musterctl(location.host, "drain", chosen, node.name));
}

function press(button) {
  if (!button || button.disabled) return;
  pressed = button.dataset.name;
  for (const one of by("nodes").children) one.tabIndex = one === button ? 0 : -1;
  button.focus();
  showNodes();
}

by("nodes").addEventListener("click", (event) => press(event.target.closest("button")));
by("nodes").addEventListener("keydown", (event) => {
  const all = [...by("nodes").children].filter((one) => !one.disabled);
  const at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const columns = getComputedStyle(by("nodes")).gridTemplateColumns.split(" ").length;
  const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -at, End: all.length - 1 - at};
  const move = moves[event.key];
  if (move === undefined || !all[at + move]) return;
  event.preventDefault();
  press(all[at + move]);
});

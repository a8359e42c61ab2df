const POLL_MS = 2000;
const MAX_SAMPLES = 900;
const MARKS = {
  AVAILABLE: ["○", "available"], ACQUIRED: ["●", "acquired: a member holds them"], ACKNOWLEDGED: ["✓", "acknowledged"],
  ARCHIVING: ["…", "archiving: the dead-letter record is not written yet"], ARCHIVED: ["✕", "archived"],
  RESOLVING: ["?", "resolving: whether the sink has their results is not known yet"],
  WAITING: ["·", "waiting: never in flight"],
};
const byId = (id) => document.getElementById(id);
const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en-US"));
// A text in an array is aligned as a number is.
const rate = (value) => [value.toFixed(1)];
const stamp = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", "");
const remaining = (ms) => (ms >= 0 ? `in ${(ms / 1000).toFixed(1)} s` : `${(-ms / 1000).toFixed(1)} s ago`);
let chosen = new URLSearchParams(location.hash.slice(1)).get("group");
let pressed = null;
let samples = [];
const drawn = new Map();

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function replace(parent, children) {
  // The control with the focus keeps it when the elements around it are made again.
  const focused = parent.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  parent.replaceChildren(...children);
  if (focused !== undefined) parent.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

function renderWhenChanged(name, content, render) {
  const text = JSON.stringify(content);
  if (drawn.get(name) === text) return;
  drawn.set(name, text);
  render();
}

function row(cells) {
  const made = element("tr");
  for (const cell of cells) {
    const isNumber = typeof cell === "number" || (Array.isArray(cell) && cell.length === 1);
    const td = cell instanceof Node ? element("td") : element("td", typeof cell === "number" ? number(cell) : cell ?? "–");
    if (cell instanceof Node) td.append(cell);
    if (isNumber) td.className = "number";
    made.append(td);
  }
  return made;
}

async function read(path) {
  const response = await fetch(path);
  const document_ = await response.json();
  if (!response.ok) throw new Error(document_.error);
  return document_;
}

function showGroups(groups) {
  renderWhenChanged("groups", [groups, chosen], () => replace(byId("group-rows"), groups.map((group) => {
    const button = element("button", group.group_id, {
      type: "button", "data-key": group.group_id, "aria-pressed": String(group.group_id === chosen),
    });
    button.addEventListener("click", () => choose(group.group_id));
    const rates = group.rates;
    return row([button, group.problems.length ? `${group.state}: ${group.problems.join("; ")}` : group.state,
      group.member_count, group.lag, group.in_flight_count, group.locked_count,
      ...["acquired_per_s", "accepted_per_s", "returned_per_s", "rejected_per_s"].map((name) => rate(rates[name]))]);
  })));
}

function choose(groupId) {
  if (groupId !== chosen) {
    samples = [];
    closeHistory();
  }
  chosen = groupId;
  history.replaceState(null, "", `#${new URLSearchParams({ group: groupId })}`);
  return poll();
}

function segmentText(segment, clients) {
  const counts = Object.entries(segment.record_count_by_state).map(([state, n]) => `${number(n)} ${state}`).join(", ");
  const members = segment.member_ids.map((id) => clients.get(id) || id).join(", ");
  const delivery = segment.highest_delivery_count ? `, delivery ${segment.highest_delivery_count}` : "";
  return `offsets ${segment.first_offset} to ${segment.last_offset}: ${counts}${delivery}${members ? `, held by ${members}` : ""}`;
}

function runButton(partition, segment, index, clients) {
  const key = `${partition.topic}-${partition.partition}-${segment.first_offset}`;
  const [mark] = MARKS[segment.state];
  const size = segment.last_offset - segment.first_offset + 1;
  const text = segmentText(segment, clients);
  const button = element("button", `${mark} ${segment.highest_delivery_count || ""}`.trim(), {
    type: "button", class: segment.state, "data-key": key, title: text, tabindex: index ? "-1" : "0",
    "aria-label": `${partition.topic}-${partition.partition}, ${text}`, "aria-pressed": String(key === pressed),
    "data-first": segment.first_offset, "data-last": segment.last_offset,
  });
  // Widths grow with the logarithm: a single record that holds back thousands must be seen.
  button.style.flexGrow = String(1 + Math.log2(size));
  button.addEventListener("click", (event) => {
    const box = button.getBoundingClientRect();
    // A press by keyboard has no position: it is for the first record.
    const part = event.detail ? Math.min(Math.max((event.clientX - box.x) / box.width, 0), 0.999) : 0;
    pressed = key;
    for (const other of byId("strips").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
    showHistory(partition.topic, partition.partition, segment.first_offset + Math.floor(part * size), segment);
  });
  return button;
}

function walk(event) {
  const buttons = [...event.currentTarget.querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement);
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (to === undefined || at < 0) return;
  event.preventDefault();
  const next = buttons[Math.min(Math.max(to, 0), buttons.length - 1)];
  for (const button of buttons) button.tabIndex = button === next ? 0 : -1;
  next.focus();
}

function stripOf(partition, clients) {
  const name = `${partition.topic}-${partition.partition}`;
  const title = element("div", undefined, { class: "strip-title" });
  title.append(element("strong", name), ...[
    ["SPSO", partition.start_offset], ["log end", partition.end_offset], ["lag", partition.lag],
    ["in flight", partition.in_flight_count], ["locked", partition.locked_count],
    ...(partition.resolving_count ? [["resolving", partition.resolving_count]] : []),
  ].map(([label, value]) => element("span", `${label} ${number(value)}`)));
  const strip = element("div", undefined, { class: "strip", role: "group", "aria-label": `Runs of ${name}` });
  strip.append(...partition.segments.map((segment, index) => runButton(partition, segment, index, clients)));
  if (!partition.segments.length) strip.append(element("span", "no records in flight, none waiting"));
  strip.addEventListener("keydown", walk);
  const whole = element("div");
  whole.append(title, strip);
  return whole;
}

function showGroup(group) {
  const clients = new Map(group.members.map((member) => [member.member_id, member.client_id]));
  byId("group").hidden = false;
  byId("group-name").textContent = `Group ${group.group_id}: ${group.state}`;
  renderWhenChanged("problems", group.problems, () => replace(byId("problems"), group.problems.map((problem) => element("p", problem, { class: "problem" }))));
  const left = group.partition_count - group.partitions.length;
  renderWhenChanged("strips", group.partitions, () => replace(byId("strips"), [
    ...group.partitions.map((partition) => stripOf(partition, clients)),
    ...(left > 0 ? [element("p", `${number(left)} share-partitions with less lag are not shown.`)] : []),
  ]));
  const letters = group.dead_letters;
  byId("dead-letters").textContent = letters.topic
    ? `Topic ${letters.topic}: ${number(letters.waiting_count)} records wait for their dead-letter record. ${letters.failure}`
    : "The group has no dead-letter topic.";
  byId("sinks").textContent = group.sinks.map((sink) => `${sink.address}: ${number(sink.open_count)} open writes, ${number(sink.in_doubt_count)} of them in doubt, ${number(sink.resolving_count)} records resolving.`).join(" ")
    || "No write into a sink is open.";
  byId("dead-letters").className = letters.failure ? "problem" : "";
  renderWhenChanged("members", group.members, () => replace(byId("member-rows"), group.members.map((member) => row([
    member.client_id, member.member_id, member.client_host, member.locked_count,
    member.assignment.map((topic) => `${topic.topic}:${topic.partitions.join(",")}`).join("; "),
  ]))));
  byId("lock-count").textContent = `${number(group.lock_count)} locks${group.lock_count > group.locks.length ? `, the first ${group.locks.length} are shown` : ""}.`;
  replace(byId("lock-rows"), group.locks.map((lock) => row([`${lock.topic}-${lock.partition}`,
    `${lock.first_offset}-${lock.last_offset}`, lock.client_id || lock.member_id, lock.delivery_count,
    [remaining(lock.remaining_ms)]])));
  showCharts(group);
}

function showCharts(group) {
  if (samples.at(-1)?.ms === group.read_ms) samples.pop();
  samples.push({ ms: group.read_ms, lag: group.lag, flight: group.in_flight_count, locked: group.locked_count, ...group.rates });
  samples = samples.slice(-MAX_SAMPLES);
  const line = (name, key, color) => ({
    type: "scatter", mode: samples.length < 3 ? "lines+markers" : "lines", name, x: samples.map((each) => each.ms),
    y: samples.map((each) => each[key]), line: { color, width: 2 }, hovertemplate: "%{y:,}",
  });
  const layout = (title) => ({
    height: 240, margin: { l: 70, r: 20, t: 10, b: 60 }, showlegend: true, hovermode: "x unified",
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false },
    xaxis: { type: "date", title: { text: "time (UTC)" }, fixedrange: true,
      range: [samples[0].ms, Math.max(samples.at(-1).ms, samples[0].ms + 60000)] },
    yaxis: { title: { text: title }, rangemode: "tozero", separatethousands: true, automargin: true, fixedrange: true },
  });
  Plotly.react(byId("lag-chart"), [line("lag", "lag", "#e0483e"), line("in flight", "flight", "#3f8fd6"),
    line("locked by members", "locked", "#c9b01f")], schemeLayout(layout("records")), chartConfig);
  Plotly.react(byId("rate-chart"), [line("acquired", "acquired_per_s", "#3f8fd6"), line("accepted", "accepted_per_s", "#2e9d5b"),
    line("returned", "returned_per_s", "#e0483e")], schemeLayout(layout("records/s")), chartConfig);
  const latest = samples.slice(-60).reverse();
  replace(byId("lag-rows"), latest.map((each) => row([stamp(each.ms), each.lag, each.flight, each.locked])));
  replace(byId("rate-rows"), latest.map((each) => row([stamp(each.ms), rate(each.acquired_per_s), rate(each.accepted_per_s), rate(each.returned_per_s)])));
}

async function showHistory(topic, partition, offset, segment) {
  const panel = byId("history");
  const input = byId("history-offset");
  input.value = String(offset);
  if (segment) { input.min = String(segment.first_offset); input.max = String(segment.last_offset); }
  panel.dataset.topic = topic;
  panel.dataset.partition = String(partition);
  panel.hidden = false;
  const query = new URLSearchParams({ group: chosen, topic, partition: String(partition), offset: String(offset) });
  const title = byId("history-title");
  try {
    const record = await read(`/history?${query}`);
    const rows = record.transitions.map((each) => row([stamp(each.time_ms), each.cause, each.from_state ?? "not in flight",
      each.to_state, each.delivery_count, each.client_id || each.member_id, each.reason || "–"]));
    const none = row(["no transition: the record was never in flight, or its history is pruned"]);
    none.firstChild.colSpan = 7;
    replace(byId("history-rows"), rows.length ? rows : [none]);
    title.textContent = `History of ${topic}-${partition}, offset ${offset}`;
  } catch (error) {
    title.textContent = `The history cannot be read: ${error.message}`;
  }
}

function closeHistory() {
  byId("history").hidden = true;
  const from = pressed && byId("strips").querySelector(`[data-key="${CSS.escape(pressed)}"]`);
  pressed = null;
  if (from) {
    from.setAttribute("aria-pressed", "false");
    from.focus();
  }
}

async function poll() {
  try {
    const all = await read("/groups");
    if (chosen === null && all.groups.length) chosen = all.groups[0].group_id;
    showGroups(all.groups);
    if (chosen !== null) showGroup(await read(`/group?${new URLSearchParams({ id: chosen })}`));
    const more = all.group_count > all.groups.length ? `, the first ${all.groups.length} are shown` : "";
    byId("status").textContent = all.error || `${number(all.group_count)} ${all.group_count === 1 ? "group" : "groups"}${more}; read at ${stamp(all.read_ms)} UTC, version ${all.version} of the state table.`;
    byId("status").className = all.error ? "problem" : "";
    document.body.dataset.polls = String(Number(document.body.dataset.polls ?? 0) + 1);
  } catch (error) {
    byId("status").textContent = `What is shown is old: ${error.message}`;
    byId("status").className = "problem";
  }
}

async function pollForEver() {
  if (document.visibilityState === "visible") await poll();
  setTimeout(pollForEver, POLL_MS);
}

byId("legend").append(...Object.entries(MARKS).map(([state, [mark, meaning]]) => {
  const item = element("li");
  item.append(element("span", mark, { class: state }), meaning);
  return item;
}));
byId("history-show").addEventListener("click", () => {
  const panel = byId("history");
  showHistory(panel.dataset.topic, Number(panel.dataset.partition), Number(byId("history-offset").value));
});
byId("history-offset").addEventListener("keydown", (event) => { if (event.key === "Enter") byId("history-show").click(); });
byId("history-close").addEventListener("click", closeHistory);
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !byId("history").hidden) closeHistory(); });
darkScheme.addEventListener("change", poll);
pollForEver();

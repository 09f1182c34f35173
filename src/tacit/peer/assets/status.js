"use strict";
// The live page of one site: numbers from /status, the course of the run from /events.
const shown = (id) => document.getElementById(id);
const accuracy = [], used = [], notices = [];
let members = [], rounds = 1;

function make(tag, words, kind) {
  const element = document.createElement(tag);
  element.textContent = words;
  if (kind) element.className = kind;
  return element;
}

function tile(name, value, more) {
  const card = make("div", "", "card tile");
  card.append(make("p", name, "name"), make("p", value, "value"), make("p", more, "more"));
  return card;
}

function amount(bytes) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (bytes >= size) return (bytes / size).toFixed(1) + " " + unit;
  }
  return bytes + " B";
}

function line(svg, points, most) {
  const width = 600, height = 220, edge = 8;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren();
  const place = ([x, y]) => `${edge + (width - 2 * edge) * x / Math.max(rounds, 1)},${height - edge - (height - 2 * edge) * y / most}`;
  const path = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  path.setAttribute("points", points.map(place).join(" "));
  path.setAttribute("fill", "none");
  path.setAttribute("stroke", "var(--accent)");
  path.setAttribute("stroke-width", "2");
  svg.append(path);
}

function take(event) {
  if (event.event === "plan") {
    rounds = event.rounds + event.gossip_rounds;
    members = event.site ? event.site.members : [];
  } else if (event.event === "snapshot" && event.accuracy) {
    accuracy.push([event.round, event.accuracy[0]]);
    line(shown("accuracy"), accuracy, 1);
  } else if (event.event === "links") {
    used.push([event.round, event.used.length]);
    line(shown("used"), used, Math.max(1, event.used.length + event.skipped.length));
  } else if (event.event === "notice") {
    const who = event.neighbor === null ? "" : members[event.neighbor];
    notices.unshift([event.time.slice(0, 19).replace("T", " "), `round ${event.round}`, event.kind, who, event.words]);
    notices.length = Math.min(notices.length, 50);
    shown("notices").replaceChildren(...notices.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((cell) => make("td", cell)));
      return row;
    }));
  }
}

// What is shown is never less than what is spent: four digits, rounded up.
function epsilon(value) {
  if (value === null || value === 0) return value === null ? "–" : "0";
  const unit = 10 ** (Math.floor(Math.log10(value)) - 3);
  return (Math.ceil(value / unit - 1e-9) * unit).toPrecision(4);
}

function show(status) {
  shown("phase").textContent = status.phase;
  shown("version").textContent = status.version;
  const up = status.links.filter((link) => link.up).length;
  const sent = status.links.reduce((sum, link) => sum + link.sent, 0);
  const last = status.last_used ? `${status.last_used[0]} of ${status.last_used[1]} in the last round` : "no round yet";
  const ended = status.phase === "finished" || status.phase === "finishing";
  const allowed = status.epsilon_allowed === null ? "" : `of ${status.epsilon_allowed} allowed`;
  const tiles = [
    tile("round", `${status.round} of ${status.rounds}`, status.phase),
    tile("links up", `${up} of ${status.links.length}`, last),
    tile(ended ? "ε spent" : "ε charged for the whole plan", epsilon(status.epsilon_charged), `${allowed} ${status.epsilon_terms}`),
    ...(status.epsilon_against_all == null ? [] : [tile("ε against everybody else", epsilon(status.epsilon_against_all), "if all others pool what they know")]),
    tile("queries made", status.queries, `ε of these: at most ${epsilon(status.epsilon_made)}`),
    tile("sent", amount(sent), "to all neighbours"),
  ];
  if (status.accuracy !== null) tiles.push(tile("accuracy", (100 * status.accuracy).toFixed(1) + " %", "on validation records"));
  shown("tiles").replaceChildren(...tiles);
  shown("links").replaceChildren(...status.links.map((link) => {
    const row = document.createElement("tr"), waits = link.waits_why ? `; waiting for ${Math.round(link.waits_seconds)} s: ${link.waits_why}` : "";
    const state = (link.up ? "up" : `down: ${link.why}`) + waits;
    row.append(make("th", link.neighbor), make("td", state, link.up ? "up" : "down"), make("td", link.used), make("td", link.skipped), make("td", amount(link.sent)), make("td", amount(link.received)));
    return row;
  }));
}

async function refresh() {
  try {
    show(await (await fetch("/status", { cache: "no-store" })).json());
  } catch (error) {
    shown("phase").textContent = "the process has ended";
  }
  setTimeout(refresh, 1000);
}

const events = new EventSource("/events");
events.onmessage = (message) => take(JSON.parse(message.data));
events.onopen = () => { accuracy.length = used.length = notices.length = 0; };
refresh();

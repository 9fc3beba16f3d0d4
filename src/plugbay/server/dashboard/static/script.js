// Live updates of a page. Pages are complete without this script: the server sends fragments of HTML, rendered and
// escaped by the templates of the page, and this script inserts them.
"use strict";

const LIVE = document.body.dataset.live;
const RETRY = 3000; // milliseconds, after the server refused a stream
const LOST = "disconnected; reconnecting";
const UNITS = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];

let stream = null;
let last = document.body.dataset.after || "";
let paused = false;

const byId = (id) => document.getElementById(id);
const connection = byId("connection");

function showConnection(text) {
  if (connection && connection.textContent !== text) connection.textContent = text;
}

function parsed(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content;
}

// Make `old` equal to `fresh`, and change only differing nodes: focus, selection and checked boxes stay.
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== 1 || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  before.slice(after.length).forEach((node) => node.remove());
  after.forEach((node, at) => (at < before.length ? morph(before[at], node) : old.append(node)));
}

// The events of the stream.
const HANDLERS = {
  put({ id, into, html }) {
    const fresh = parsed(html).firstElementChild;
    const old = byId(id);
    refresh(fresh);
    if (old) morph(old, fresh);
    else byId(into)?.append(fresh);
  },

  order({ into, ids }) {
    const parent = byId(into);
    const rows = ids.map(byId).filter((row) => row && row.parentNode === parent);
    [...parent.children].filter((row) => !rows.includes(row)).forEach((row) => row.remove());
    rows.forEach((row, at) => parent.children[at] !== row && parent.insertBefore(row, parent.children[at]));
  },

  add({ into, html, most, fill, first }) {
    const list = byId(into);
    const lines = [...parsed(html).children]; // without the white space between them, which nothing would remove again
    if (fill) list.replaceChildren(...lines);
    else if (first) list.prepend(...lines);
    else list.append(...lines);
    while (list.children.length > most) (first ? list.lastElementChild : list.firstElementChild).remove();
  },

  end() {
    close();
    location.reload(); // shows the login page
  },
};

function open() {
  if (!LIVE || stream || paused || document.hidden) return;
  const url = new URL(LIVE, location.href);
  if (last) url.searchParams.set("after", last);
  stream = new EventSource(url);
  stream.onopen = found;
  stream.onerror = lost;
  for (const [name, handle] of Object.entries(HANDLERS)) {
    stream.addEventListener(name, (event) => {
      last = event.lastEventId || last;
      handle(JSON.parse(event.data));
    });
  }
}

function close() {
  stream?.close();
  stream = null;
}

function found() {
  const was = connection?.textContent;
  showConnection(was === LOST ? "reconnected" : "");
  if (was === LOST) setTimeout(() => connection.textContent === "reconnected" && showConnection(""), RETRY);
}

// The browser reconnects a broken stream, but not a refused one: load the page to find the reason.
async function lost() {
  showConnection(LOST);
  if (stream?.readyState !== EventSource.CLOSED) return;
  close();
  const answer = await fetch(location.href).catch(() => null);
  if (answer?.status === 401) location.reload();
  else setTimeout(open, RETRY);
}

// Browsers allow few connections to one server, so a hidden page closes its stream.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);

for (const button of document.querySelectorAll("[data-pause]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume" : "Pause";
    button.setAttribute("aria-pressed", String(paused));
    showConnection(paused ? "paused" : "");
    paused ? close() : open();
  });
}

// `3 min ago`, the same text as from the server.
function ago(seconds) {
  if (seconds < 5) return "now";
  const [name, size] = UNITS.find((unit) => seconds >= unit[1]);
  const count = Math.floor(seconds / size);
  return `${count} ${name}${name === "day" && count > 1 ? "s" : ""} ago`;
}

function refresh(root) {
  for (const time of root.querySelectorAll("time[data-ago]")) {
    const text = ago(Math.max(0, Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000)));
    if (time.textContent !== text) time.textContent = text;
  }
}

// The value of a slider; without this script the next page shows it.
for (const slider of document.querySelectorAll("input[type=range]")) {
  slider.addEventListener("input", () => (byId(`${slider.id}-value`).textContent = `${slider.value} %`));
}

setInterval(() => document.hidden || refresh(document), 5000);
open();

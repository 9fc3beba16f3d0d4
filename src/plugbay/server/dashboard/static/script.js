// Keeps a page fresh. Pages are whole without it: the server sends pieces of HTML, made by the templates that made the
// page, and this puts them in their place. Everything a stranger has said was escaped there.
"use strict";

const LIVE = document.body.dataset.live;
const RETRY = 3000; // milliseconds, after the server has refused
const UNITS = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];

let stream = null;
let last = document.body.dataset.after || "";
let paused = false;

const byId = (id) => document.getElementById(id);
const connection = byId("connection");

function say(text) {
  if (connection && connection.textContent !== text) connection.textContent = text;
}

function parsed(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content;
}

// Make `old` look like `fresh`, touching only what differs: what has the focus, is selected or was ticked stays so.
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

// The words of the stream.
const WORDS = {
  put({ id, into, html }) {
    const fresh = parsed(html).firstElementChild;
    const old = byId(id);
    refresh(fresh);
    if (old) morph(old, fresh);
    else byId(into)?.append(fresh);
  },

  order({ into, ids }) {
    const parent = byId(into);
    // The page has no table when it was made without rows. With the first row it is made again, and not before.
    if (!parent) return ids.every(byId) || location.reload();
    const rows = ids.map(byId).filter((row) => row && row.parentNode === parent);
    [...parent.children].filter((row) => !rows.includes(row)).forEach((row) => row.remove());
    rows.forEach((row, at) => parent.children[at] !== row && parent.insertBefore(row, parent.children[at]));
  },

  add({ into, html, most, fill }) {
    const list = byId(into);
    if (fill) list.replaceChildren(parsed(html));
    else list.append(parsed(html));
    while (list.children.length > most) list.firstElementChild.remove();
  },

  end() {
    close();
    location.reload(); // to where one logs in
  },
};

function open() {
  if (!LIVE || stream || paused || document.hidden) return;
  const url = new URL(LIVE, location.href);
  if (last) url.searchParams.set("after", last);
  stream = new EventSource(url);
  stream.onopen = () => say("");
  stream.onerror = lost;
  for (const [word, act] of Object.entries(WORDS)) {
    stream.addEventListener(word, (event) => {
      last = event.lastEventId || last;
      act(JSON.parse(event.data));
    });
  }
}

function close() {
  stream?.close();
  stream = null;
}

// A connection that broke is made again by the browser; one that was refused is not: ask the page why.
async function lost() {
  say("not connected; trying again");
  if (stream?.readyState !== EventSource.CLOSED) return;
  close();
  const answer = await fetch(location.href).catch(() => null);
  if (answer?.status === 401) location.reload();
  else setTimeout(open, RETRY);
}

// Browsers allow a few connections to a server: a page that nobody looks at lets go of its own.
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);

for (const button of document.querySelectorAll("[data-pause]")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Go on" : "Pause";
    button.setAttribute("aria-pressed", String(paused));
    say(paused ? "paused" : "");
    paused ? close() : open();
  });
}

// `3 min ago`, in the same words as the server's.
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

setInterval(() => document.hidden || refresh(document), 5000);
open();

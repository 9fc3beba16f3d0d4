// What is typed into a screen of a plugin goes to the plugin. Loaded by the page of a screen, after script.js; the page
// has a form for keys that works without it.
"use strict";

// Keys of a screen, by the names that the host knows. Tab moves the focus, and keys of the system stay with it.
const KEYS = {
  Enter: "enter", Escape: "esc", Backspace: "backspace", Delete: "delete", Insert: "insert", Home: "home", End: "end",
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", PageUp: "page_up", PageDown: "page_down",
  " ": "space", "+": "plus",
};

function keyName({ key, ctrlKey, altKey, shiftKey }) {
  const name = KEYS[key] || (/^F\d+$/.test(key) ? key.toLowerCase() : [...key].length === 1 ? key : "");
  const held = (ctrlKey ? "ctrl+" : "") + (altKey ? "alt+" : "") + (shiftKey && KEYS[key] && key.length > 1 ? "shift+" : "");
  return name && held + name;
}

for (const screen of document.querySelectorAll("[data-keys]")) {
  let waiting = [];
  let sending = false;

  const send = async () => {
    if (sending || !waiting.length) return;
    sending = true;
    const form = new URLSearchParams({ form_key: screen.dataset.formKey, quiet: "yes" });
    waiting.splice(0, 64).forEach((name) => form.append("key", name));
    await fetch(screen.dataset.keys, { method: "POST", body: form }).catch(() => showConnection(LOST));
    sending = false;
    send();
  };

  screen.addEventListener("keydown", (event) => {
    if (event.key === "Tab" || event.metaKey || event.isComposing) return;
    const name = keyName(event);
    if (!name) return;
    event.preventDefault();
    waiting.push(name);
    send();
  });
}

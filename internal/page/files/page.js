// Refreshes the page in place: what has not changed stays as it is, with its focus, its scroll position and what is selected in it.
"use strict";

const every = 5000; // milliseconds
let paused = false;
let asking = false;

// same makes the children of an element those of another one, and touches only what differs.
function same(old, next) {
  if (old.isEqualNode(next)) return;
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName || (old.id || "") !== (next.id || "")) {
    old.replaceWith(next);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = next.nodeValue;
    return;
  }
  const own = (name) => old.nodeName === "DETAILS" && name === "open"; // that is the reader's
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && !own(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...next.attributes]) {
    if (old.getAttribute(name) !== value && !own(name)) old.setAttribute(name, value);
  }
  const gone = [...old.childNodes];
  const come = [...next.childNodes];
  // A row that comes or goes leaves the others what they are: those with an id are found by it.
  const byID = new Map(gone.filter((n) => n.id).map((n) => [n.id, n]));
  const stays = new Set(come.filter((n) => n.id).map((n) => n.id));
  let at = 0;
  for (const node of come) {
    while (at < gone.length && gone[at].id && !stays.has(gone[at].id)) gone[at++].remove();
    if (node.id && byID.has(node.id)) {
      // What is moved loses the focus: so what is between goes, unless it stays and only its order is another one.
      const kept = byID.get(node.id);
      const to = gone.indexOf(kept, at);
      if (to >= 0 && !gone.slice(at, to).some((n) => stays.has(n.id))) {
        while (at < to) gone[at++].remove();
        at++;
      } else {
        old.insertBefore(kept, gone[at] || null);
      }
      same(kept, node);
    } else if (at < gone.length && !gone[at].id && !node.id) {
      same(gone[at++], node);
    } else {
      old.insertBefore(node, gone[at] || null);
    }
  }
  for (; at < gone.length; at++) if (!stays.has(gone[at].id)) gone[at].remove();
}

// lost says that the process does not answer, where a screen reader hears it once.
function lost(text) {
  let notice = document.getElementById("lost");
  if (!text) {
    if (notice) notice.textContent = "";
    return;
  }
  if (!notice) {
    notice = document.createElement("p");
    notice.id = "lost";
    notice.className = "notice act";
    notice.setAttribute("role", "status");
    document.querySelector("header").after(notice);
  }
  if (notice.textContent !== text) notice.textContent = text;
}

async function refresh() {
  if (paused || asking || document.hidden || !getSelection().isCollapsed) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!next.getElementById("main")) throw new Error("no page");
    same(document.querySelector("header"), next.querySelector("header"));
    same(document.getElementById("main"), next.getElementById("main"));
    document.title = next.title;
    lost("");
  } catch {
    lost("The process that serves this page does not answer. What is below is as old as it says.");
  } finally {
    asking = false;
  }
}

// What moves by itself can be stopped.
const place = document.getElementById("refresh");
if (place) {
  const button = document.createElement("button");
  button.type = "button";
  const label = () => { button.textContent = paused ? "Refresh again" : "Stop refreshing"; };
  button.addEventListener("click", () => { paused = !paused; label(); refresh(); });
  label();
  place.append(", ", button);
}
document.addEventListener("visibilitychange", refresh);
setInterval(refresh, every);

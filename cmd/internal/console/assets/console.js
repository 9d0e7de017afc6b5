"use strict";
// What is live: countdowns, figures that refresh, a document that expires, and events as they come.
// Everything else works without this script.

const $ = (id) => document.getElementById(id);
const lead = Number(document.body.dataset.now) - Date.now(); // of the server's clock
const now = () => Date.now() + lead;

// period is written as by the server.
function period(ms) {
  const s = Math.floor(ms / 1000), units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const i = units.findIndex(([, long]) => s >= long || long === 1), [name, long] = units[i];
  const [small, short] = units[i + 1] || ["", 0], rest = short ? Math.floor((s % long) / short) : 0;
  return Math.floor(s / long) + " " + name + (rest ? " " + rest + " " + small : "");
}

function countDown() {
  for (const e of document.querySelectorAll(".countdown")) {
    const left = e.dataset.deadline - now();
    const text = left > 0 ? "in " + period(left) : "expired";
    if (e.textContent !== text) e.textContent = text;
  }
}
setInterval(countDown, 1000);
countDown();

// Parts that refresh are replaced by those of the page as it is now. One that has the focus, or that
// is being clicked, stays, and so does a page that answers a form: its address may be none of a page.
async function refresh() {
  const parts = document.querySelectorAll("[data-refresh]");
  if (document.hidden || "sent" in document.body.dataset) return;
  try {
    const answer = await fetch(location.href, { headers: { "Lapse-Refresh": "1" } });
    if (answer.status === 401) return unwell("Signed out");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      const fresh = page.getElementById(part.id);
      const used = part.contains(document.activeElement) || part.matches(":active") || part.querySelector("details[open]");
      if (fresh && !used) part.replaceWith(document.adoptNode(fresh));
    }
    countDown();
    offerCopies();
  } catch {
    unwell("No answer");
  }
}
function unwell(text) {
  const health = document.querySelector("#health a");
  health.className = "bad";
  health.textContent = text;
}
if (document.querySelector("main [data-refresh]")) setInterval(refresh, 5000);

// A document that is open is asked for now and then, and at its deadline.
const gone = $("gone");
let deadline; // as the server said last
async function watch() {
  let next = 5000;
  try {
    if (!document.hidden) {
      const answer = await fetch(gone.dataset.watch, { method: "HEAD" });
      const etag = (answer.headers.get("ETag") || "").replaceAll('"', "");
      const there = answer.status !== 404;
      const text = !there ? "This document " + (deadline && deadline <= now() ? "has expired" : "was deleted, or has expired") + ". What you see is its last version."
        : answer.ok && etag !== gone.dataset.etag ? "There is a newer version of this document. Reload the page to see it." : "";
      if (gone.textContent !== text) gone.textContent = text;
      for (const e of document.querySelectorAll("[data-while-there]")) e.hidden = !there;
      $("gone-link").hidden = there;
      if (!there) return;
      deadline = Date.parse(answer.headers.get("Lapse-Expires-At"));
      if (deadline) next = Math.min(next, Math.max(deadline - now(), 100));
    }
  } catch { /* the next time tells */ }
  setTimeout(watch, next);
}
if (gone) watch();

// A document in a list whose deadline is over leaves it, once the server says that it is gone: another write may have
// renewed it.
const leaving = new Set();
async function leave(row) {
  const countdown = row.querySelector(".countdown"), link = row.querySelector("a");
  leaving.add(row);
  try {
    const answer = await fetch(link.href, { method: "HEAD" });
    const deadline = Date.parse(answer.headers.get("Lapse-Expires-At"));
    if (answer.ok && deadline) countdown.dataset.deadline = deadline;
    if (answer.ok && !deadline) countdown.replaceWith("never");
    if (answer.status === 404) {
      row.classList.add("leaves");
      await new Promise((done) => setTimeout(done, matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 600));
      if (row.contains(document.activeElement)) ((row.nextElementSibling || row.previousElementSibling)?.querySelector("a") || $("main")).focus();
      row.remove();
      if ($("documents").tBodies[0].rows.length === 0) $("all-left").hidden = false;
    }
  } catch { /* the next time tells */ }
  leaving.delete(row);
}
if ($("documents")) setInterval(() => {
  if (document.hidden) return;
  for (const row of $("documents").tBodies[0].rows) {
    if (leaving.size === 8) return; // requests at a time
    if (!leaving.has(row) && row.querySelector(".countdown")?.dataset.deadline <= now()) leave(row);
  }
}, 1000);

// Instants are written in UTC. The local time is beside those that stand alone, and shows for others where one points.
function local() {
  for (const e of document.querySelectorAll("time[datetime]:not([title])")) {
    const at = new Date(e.dateTime);
    if (isNaN(at)) continue;
    e.title = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
    if (!e.closest(".times") || at.getTimezoneOffset() === 0) continue;
    const beside = document.createElement("small");
    beside.className = "local";
    beside.textContent = at.toLocaleString(undefined, { timeStyle: "medium" }) + " local";
    e.after(" ", beside);
  }
}
setInterval(local, 1000);
local();

function offerCopies() {
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.hidden = !navigator.clipboard;
    button.onclick = async () => {
      await navigator.clipboard.writeText($(button.dataset.copies).textContent);
      button.textContent = "Copied";
    };
  }
}
offerCopies();

// Where the document stops being JSON, the cursor stands.
const wrong = $("body-line");
if (wrong) {
  const at = Number(wrong.dataset.at);
  $("body").setSelectionRange(at, at + 1); // the page focuses it
}

// The notice of an action is not for the next reload.
if ($("notice")) {
  const url = new URL(location.href);
  url.searchParams.delete("done");
  url.searchParams.delete("warned");
  history.replaceState(null, "", url);
}

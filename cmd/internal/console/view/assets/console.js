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

// Live events. A pause ends the connection; the next one goes on behind the last message.
const table = $("messages");
if (table) {
  const most = 500, body = table.tBodies[0], pause = $("pause"), connection = $("connection");
  const pending = [];
  let after = table.dataset.after, source, again;

  const cell = (row, text, name, href) => {
    const td = row.insertCell();
    td.className = name || "";
    const inner = href ? document.createElement("a") : name === "snippet" ? document.createElement("code") : null;
    if (href) inner.href = href;
    if (inner) td.append(inner);
    (inner || td).textContent = text;
    return td;
  };
  const instant = (row, text) => {
    const at = document.createElement("time"), date = document.createElement("span");
    at.dateTime = text;
    date.className = "date";
    date.textContent = text.slice(0, 10);
    at.append(date, " " + text.slice(11, 19));
    cell(row, "").append(at);
  };
  const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  const snippet = (text) => {
    const all = [...visible(text.slice(0, 400).replace(/\s+/g, " "))];
    return all.length > 80 ? all.slice(0, 80).join("") + "…" : all.join("");
  };
  // documentOf is the text of an event's document as it is: JavaScript would round its numbers.
  const documentOf = (event) => event.slice(event.indexOf('"document":') + 11, event.lastIndexOf(',"etag":"'));

  // idOf is the id that a message is about: a rejection has it in its subject.
  const idOf = (m) => {
    if (m.id !== undefined) return m.id;
    try {
      return decodeURIComponent((m.subject || "").split(".").pop());
    } catch {
      return "";
    }
  };

  // The rate is that of the last ten seconds.
  const rateOver = 10000;
  let came = []; // when
  function pace() {
    const from = Date.now() - rateOver;
    came = came.filter((at) => at > from);
    const rate = came.length / (rateOver / 1000);
    const text = (rate >= 10 ? Math.round(rate).toLocaleString("en") : rate.toFixed(1)) + " a second";
    if ($("pace").textContent !== text) $("pace").textContent = text;
  }
  setInterval(pace, 1000);

  function show(seq, m, data) {
    const row = body.insertRow(0);
    row.dataset.seq = seq;
    row.className = "new";
    cell(row, seq, "number", "/console/live/messages/" + seq);
    const warned = m.before && new Date(Date.parse(m.expiresAt) - m.before * 1000).toISOString();
    instant(row, warned || m.expiredAt || m.dueAt || m.at);
    if (table.dataset.kind === "rejected") {
      cell(row, m.code, "number");
      cell(row, m.error, "reason");
      cell(row, m.subject, "id");
      cell(row, snippet(m.body), "snippet");
    } else {
      cell(row, m.collection, table.dataset.stream.includes("collection=") ? "wide" : "", "/console/collections/" + m.collection);
      cell(row, visible(m.id), "id");
      if (warned) {
        cell(row, m.before.toLocaleString("en") + " s", "number");
        instant(row, m.expiresAt);
      } else if (m.target) cell(row, m.target, "id");
      else cell(row, m.ttl ? m.ttl.toLocaleString("en") + " s" : "", "number wide"); // none of an absolute deadline
      cell(row, m.document === undefined ? "(left out: it is too large)" : snippet(documentOf(data)), "snippet");
    }
    while (body.rows.length > most) body.deleteRow(-1);
    $("nothing").hidden = true;
  }

  const say = (text) => { if (connection.textContent !== text) connection.textContent = text; };
  function open() {
    clearTimeout(again);
    const url = new URL(table.dataset.stream, location.href);
    if (after) url.searchParams.set("after", after);
    source = new EventSource(url);
    source.onopen = () => say("Live");
    source.onmessage = (e) => {
      after = e.lastEventId;
      const m = JSON.parse(e.data);
      if (!idOf(m).startsWith(table.dataset.ids)) return;
      came.push(Date.now());
      if (pending.push([after, m, e.data]) > most) pending.shift();
      if (pending.length === 1) setTimeout(() => { for (const [seq, m, data] of pending.splice(0)) show(seq, m, data); }, 50); // many at once
    };
    source.addEventListener("gap", (e) => say(JSON.parse(e.data).reason));
    source.onerror = () => {
      say("No connection. Trying again…");
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, 2000); // the server refused; otherwise the browser tries again
    };
  }
  pause.onclick = () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", paused);
    pause.textContent = paused ? "Resume" : "Pause";
    if (!paused) return open();
    source.close();
    clearTimeout(again);
    say("Paused behind message " + after);
  };
  $("controls").hidden = false;
  open();
}

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

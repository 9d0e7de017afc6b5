"use strict";
// The page Live: what is new comes at the top. It uses console.js.

// Live events. A pause ends the connection; the next one goes on behind the last message.
const table = $("messages");
if (table) {
  const most = 500, body = table.tBodies[0], pause = $("pause"), connection = $("connection");
  const pending = [], shownAtFirst = 50; // as many as the page has at most
  const changes = ["created", "updated", "deleted", "expired", "due", "collection-dropped"]; // and how they end
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
  const instant = (row, text, name) => {
    const at = document.createElement("time"), date = document.createElement("span");
    at.dateTime = text;
    date.className = "date";
    date.textContent = text.slice(0, 10);
    at.append(date, " " + text.slice(11, 19));
    cell(row, "", name).append(at);
  };
  const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
  const snippet = (text) => {
    const all = [...visible(text.slice(0, 400).replace(/\s+/g, " "))];
    return all.length > 80 ? all.slice(0, 80).join("") + "…" : all.join("");
  };
  // documentOf is the text of an event's document as it is: JavaScript would round its numbers.
  const documentOf = (event) => event.slice(event.indexOf('"document":') + 11, event.lastIndexOf(',"etag":"'));

  const snippetOf = (m, data) => m.document === undefined ? "(left out)" : snippet(documentOf(data));

  // idOf is the id that a message is about: a rejection has it in its subject.
  const idOf = (m) => {
    if (m.id !== undefined) return m.id;
    try {
      return decodeURIComponent((m.subject || "").split(".").pop());
    } catch {
      return "";
    }
  };

  // The rate is that of the last ten seconds. What the page has already counts too, so the rate is right at once; if it
  // could have more, only from its oldest one on. What comes late, as after a pause, counts when it happened.
  const rateOver = 10000, firstRows = [...body.querySelectorAll("td:nth-child(2) time")].map((e) => Date.parse(e.dateTime) - lead);
  let came = [...firstRows], opened = 0; // when
  const known = firstRows.length < shownAtFirst ? 0 : Math.min(...firstRows);
  const happened = (m) => Date.parse(m.before ? m.expiresAt : m.expiredAt || m.dueAt || m.at || m.ts) - (m.before || 0) * 1000 - lead;
  const count = (m) => came.push(Date.now() < opened + 2000 ? Math.min(happened(m) || Date.now(), Date.now()) : Date.now());
  function pace() {
    const over = Math.min(rateOver, Math.max(1000, Date.now() - known)), from = Date.now() - over;
    came = came.filter((at) => at > Date.now() - rateOver);
    const rate = came.filter((at) => at > from).length / (over / 1000);
    const text = (rate >= 10 ? Math.round(rate).toLocaleString("en") : rate.toFixed(1)) + " a second";
    if ($("pace").textContent !== text) $("pace").textContent = text;
  }
  setInterval(pace, 1000);
  pace();

  function show(seq, m, data) {
    const row = body.insertRow(0);
    row.dataset.seq = seq;
    row.className = "new";
    cell(row, seq, "number", "/console/live/messages/" + seq);
    const warned = m.before && new Date(Date.parse(m.expiresAt) - m.before * 1000).toISOString();
    instant(row, warned || m.expiredAt || m.dueAt || m.at || m.ts);
    if (table.dataset.kind === "rejected") {
      cell(row, m.code, "number");
      cell(row, m.error, "reason");
      cell(row, m.subject, "id");
      cell(row, snippet(m.body), "snippet");
    } else if (m.what) {
      cell(row, m.what, "");
      cell(row, visible(m.id || ""), "id");
      if (m.expiresAt) instant(row, m.expiresAt, "wide");
      else cell(row, m.etag && !m.expiredAt && !m.dueAt ? "never" : "–", "wide");
      cell(row, m.documentUnchanged ? "(as before)" : !m.etag ? "" : snippetOf(m, data), "snippet");
    } else {
      cell(row, m.collection, table.dataset.stream.includes("collection=") ? "wide" : "", "/console/collections/" + m.collection);
      cell(row, visible(m.id), "id");
      if (warned) {
        cell(row, m.before.toLocaleString("en") + " s", "number");
        instant(row, m.expiresAt);
      } else if (m.target) cell(row, m.target, "id");
      else cell(row, m.ttl ? m.ttl.toLocaleString("en") + " s" : "", "number wide"); // none of an absolute deadline
      cell(row, snippetOf(m, data), "snippet");
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
    source.onopen = () => { opened = Date.now(); say("Live"); };
    source.onmessage = (e) => {
      after = e.lastEventId;
      const m = JSON.parse(e.data);
      if (e.type !== "message") m.what = e.type.replace("collection-dropped", "dropped"); // of changes
      if (!idOf(m).startsWith(table.dataset.ids)) return;
      count(m);
      if (pending.push([after, m, e.data]) > most) pending.shift();
      if (pending.length === 1) setTimeout(() => { for (const [seq, m, data] of pending.splice(0)) show(seq, m, data); }, 50); // many at once
    };
    for (const what of changes) source.addEventListener(what, source.onmessage);
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

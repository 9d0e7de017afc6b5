// express-store.mjs keeps the sessions of express-session in lapse, over its HTTP API. Copy it beside your program:
//
//   app.use(session({ store: new LapseStore(), secret, cookie: { maxAge: 30 * 60 * 1000 } }));
//
// Configure the collection first: lapse config sessions --default-ttl -1
import { callbackify } from "node:util";
import session from "express-session";

// problem is the error that an answer of lapse means.
async function problem(response) {
  const { detail, title, code } = await response.json().catch(() => ({}));
  return Object.assign(new Error(`lapse: ${response.status}: ${detail ?? title ?? response.statusText}`), { code });
}

// ifThere makes null of the error that a document does not exist.
function ifThere(error) {
  if (error.code === "not-found") return null;
  throw error;
}

// answer calls done with what a promise brings.
function answer(promise, done = () => {}) {
  callbackify(async () => promise)(done);
}

function path(id) {
  return `/documents/${encodeURIComponent(id)}`;
}

export class LapseStore extends session.Store {
  // token is one of --http-token-file. ttl is the seconds that a session lives whose cookie has no maxAge. With
  // touch: false no request renews a session by itself: for a collection with slideOnRead, where reads do.
  constructor(options = {}) {
    super();
    const { url = "http://127.0.0.1:7070", collection = "sessions" } = options;
    this.base = `${url.replace(/\/+$/, "")}/v1/collections/${encodeURIComponent(collection)}`;
    this.headers = options.token ? { authorization: `Bearer ${options.token}` } : {};
    this.defaultTTL = options.ttl ?? 86400;
    this.touches = options.touch ?? true;
    this.timeout = options.timeout ?? 5000; // milliseconds
  }

  async request(method, path, body) {
    const headers = body ? { ...this.headers, "content-type": "application/json" } : this.headers;
    const signal = AbortSignal.timeout(this.timeout);
    const response = await fetch(this.base + path, { method, headers, signal, body: body && JSON.stringify(body) });
    if (!response.ok) throw await problem(response);
    return response.status === 204 ? null : response.json();
  }

  // ttl is how long a session lives after its last request, in whole seconds. A cookie that ends with the browser
  // has no maxAge.
  ttl({ cookie }) {
    const age = cookie?.originalMaxAge;
    return typeof age === "number" ? Math.max(1, Math.ceil(age / 1000)) : this.defaultTTL;
  }

  get(id, done) {
    answer(this.request("GET", path(id)).then((document) => document.session).catch(ifThere), done);
  }

  set(id, data, done) {
    answer(this.request("PUT", path(id), { session: data, ttl: this.ttl(data) }), done);
  }

  destroy(id, done) {
    answer(this.request("DELETE", path(id)).catch(ifThere), done);
  }

  // touch lets the TTL of a session begin again. One that has expired meanwhile stays so.
  touch(id, data, done) {
    answer(this.touches ? this.request("POST", `${path(id)}/touch`).catch(ifThere) : null, done);
  }

  length(done) {
    answer(this.request("GET", "/count").then((count) => count.live), done);
  }

  all(done) {
    answer(this.list(), done);
  }

  async list() {
    const sessions = {};
    let next = "";
    do {
      const page = await this.request("GET", `/documents?limit=1000&continuation=${encodeURIComponent(next)}`);
      for (const { id, document } of page.documents) sessions[id] = document.session;
      next = page.continuation;
    } while (next);
    return sessions;
  }
}

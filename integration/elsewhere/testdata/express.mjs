// It runs an Express with sessions in lapse, at the address that is its argument, asks it, and prints what happens.
import assert from "node:assert/strict";
import { promisify } from "node:util";
import express from "express";
import session from "express-session";
import { LapseStore } from "./express-store.mjs";

const [url, token] = process.argv.slice(2);
const store = new LapseStore({ url, token, ttl: 120 });
const call = (name, ...args) => promisify(store[name]).apply(store, args);

const app = express();
app.use(session({ store, secret: "s", resave: false, saveUninitialized: false, cookie: { maxAge: 60_000 } }));
app.get("/login", (req, res) => { req.session.user = "ada"; req.session.ttl = 1; res.send(req.sessionID); });
app.get("/", (req, res) => res.send(req.session.user ?? "nobody"));
app.get("/logout", (req, res, next) => req.session.destroy((error) => (error ? next(error) : res.send("bye"))));
const server = app.listen(0, "127.0.0.1");
await new Promise((resolve) => server.on("listening", resolve));

let cookie = "";
async function ask(path) {
  const answer = await fetch(`http://127.0.0.1:${server.address().port}${path}`, { headers: { cookie } });
  cookie = answer.headers.get("set-cookie")?.split(";")[0] ?? cookie;
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return text;
}

const document = async (id) => {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(`${url}/v1/collections/sessions/documents/${encodeURIComponent(id)}`, { headers });
  return { status: answer.status, etag: answer.headers.get("etag"), body: await answer.json() };
};

assert.equal(await ask("/"), "nobody");
const id = await ask("/login");
const first = await document(id);
assert.equal(first.body.ttl, 60);
assert.equal(first.body.session.user, "ada");
assert.equal(await ask("/"), "ada");
const touched = await document(id);
assert.notEqual(touched.etag, first.etag, "the request has not renewed the session");
assert.equal(await call("length"), 1);
assert.deepEqual(Object.keys(await call("all")), [id]);
assert.equal(await ask("/logout"), "bye");
assert.equal((await document(id)).status, 404);
assert.equal(await ask("/"), "nobody");

// Ids of any kind; a cookie that ends with the browser; what is not there.
await call("set", "../a b", { cookie: { originalMaxAge: null }, n: 1 });
assert.equal((await document("../a b")).body.ttl, 120);
assert.deepEqual(await call("get", "../a b"), { cookie: { originalMaxAge: null }, n: 1 });
assert.equal(await call("get", "none"), null);
await call("touch", "none", {});
await call("destroy", "none");
await call("set", "short", { cookie: { originalMaxAge: 1 } });
for (let n = 0; (await call("get", "short")) !== null; n++) assert.ok(n < 10_000, "it does not expire");

// With a collection that slides, a request writes nothing by itself.
const sliding = new LapseStore({ url, token, touch: false });
const before = (await document("../a b")).etag;
await promisify(sliding.touch).call(sliding, "../a b", {});
assert.equal((await document("../a b")).etag, before);

// What lapse refuses, and that nobody answers, are errors.
await assert.rejects(call("set", "x".repeat(300), { cookie: {} }), /lapse: 400: /);
const wrong = new LapseStore({ url: "http://127.0.0.1:9", timeout: 5000 });
await assert.rejects(promisify(wrong.get).call(wrong, "1"));
server.close();
console.log("done");

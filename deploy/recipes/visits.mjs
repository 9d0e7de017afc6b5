// visits.mjs configures a collection, writes a document, waits for the outcome, reads it, lets it expire, and follows
// the events by a durable consumer.
import { connect, createInbox, headers } from "@nats-io/transport-node";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";

const timeout = 30_000;
const nc = await connect({ servers: "nats://127.0.0.1:4222", timeout });
const js = jetstream(nc, { timeout });

async function write(subject, body) {
  const inbox = createInbox(), h = headers();
  h.set("Lapse-Reply-To", inbox);
  const outcomes = nc.subscribe(inbox, { max: 1, timeout });
  await js.publish(subject, JSON.stringify(body), { headers: h });
  for await (const m of outcomes) {
    const outcome = m.json();
    if (outcome.status >= 400) throw new Error(outcome.error);
    return outcome;
  }
}

await write("lapse.config.visits", { defaultTtl: 3600 });
const created = await write("lapse.write.upsert.visits.7", { page: "/tea" });
console.log("status", created.status, "etag", created.etag, "expires at", created.expiresAt);

const doc = await nc.request("lapse.read.get.visits.7", "", { timeout });
if (doc.headers.has("Nats-Service-Error-Code")) throw new Error(doc.headers.get("Nats-Service-Error"));
console.log("read", doc.json(), "expires at", doc.headers.get("Lapse-Expires-At"));

await write("lapse.write.patch.visits.7", { ttl: 1 });

const manager = await jetstreamManager(nc, { timeout });
await manager.consumers.add("LAPSE_EVENTS", {
  durable_name: "visits-billing", filter_subject: "lapse.expired.visits.>", ack_policy: AckPolicy.Explicit,
});
const billing = await js.consumers.get("LAPSE_EVENTS", "visits-billing");
for await (const m of await billing.consume()) {
  const { id, document, expiredAt } = m.json();
  console.log("expired", id, document, "at", expiredAt);
  m.ack(); // m.nak(5000) in its place: once more in 5 s
  break;   // a service goes on
}
await nc.drain();

// follow.mjs follows events on servers with users and TLS (deploy/secrets deploy/trial), as CloudEvents.
import { readFileSync } from "node:fs";
import { connect } from "@nats-io/transport-node";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { HTTP } from "cloudevents";

const dir = "deploy/trial", timeout = 30_000;
const nc = await connect({
  servers: "tls://127.0.0.1:4222", timeout,
  user: "reader", pass: readFileSync(`${dir}/nats-reader.password`, "utf8").trim(), inboxPrefix: "_INBOX.reader",
  tls: { caFile: `${dir}/ca.crt`, certFile: `${dir}/reader.crt`, keyFile: `${dir}/reader.key` },
});
const manager = await jetstreamManager(nc, { timeout });
await manager.consumers.add("LAPSE_EVENTS", {
  durable_name: "audit", filter_subject: "lapse.expired.visits.>", ack_policy: AckPolicy.Explicit,
});
const audit = await jetstream(nc, { timeout }).consumers.get("LAPSE_EVENTS", "audit");
for await (const m of await audit.consume()) {
  const headers = Object.fromEntries([...m.headers].map(([name, values]) => [name, values[0]]));
  const event = HTTP.toEvent({ headers, body: m.string() });
  console.log(event.type, event.source, event.id, event.time, event.data.document);
  m.ack();
  break;
}
await nc.drain();

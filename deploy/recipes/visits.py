# visits.py does what visits.mjs does. It needs "pip install nats-py".
import asyncio
import json

import nats


async def main():
    nc = await nats.connect("nats://127.0.0.1:4222")
    js = nc.jetstream(timeout=30)

    async def write(subject, body):
        inbox = nc.new_inbox()
        outcomes = await nc.subscribe(inbox)
        await js.publish(subject, json.dumps(body).encode(), headers={"Lapse-Reply-To": inbox})
        outcome = json.loads((await outcomes.next_msg(timeout=30)).data)
        await outcomes.unsubscribe()
        if outcome["status"] >= 400:
            raise RuntimeError(outcome["error"])
        return outcome

    await write("lapse.config.visits", {"defaultTtl": 3600})
    created = await write("lapse.write.upsert.visits.7", {"page": "/tea"})
    print("status", created["status"], "etag", created["etag"], "expires at", created["expiresAt"])

    doc = await nc.request("lapse.read.get.visits.7", timeout=30)
    if "Nats-Service-Error-Code" in doc.headers:
        raise RuntimeError(doc.headers["Nats-Service-Error"])
    print("read", doc.data.decode(), "expires at", doc.headers["Lapse-Expires-At"])

    await write("lapse.write.patch.visits.7", {"ttl": 1})

    events = await js.pull_subscribe("lapse.expired.visits.>", durable="visits-billing", stream="LAPSE_EVENTS")
    for m in await events.fetch(1, timeout=60):
        event = json.loads(m.data)
        print("expired", event["id"], event["document"], "at", event["expiredAt"])
        await m.ack()
    await nc.drain()


asyncio.run(main())

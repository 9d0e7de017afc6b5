package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// closedToOthers are subjects to which only lapse, or not even lapse, may publish.
var closedToOthers = []string{
	"lapse.tick", "lapse.shard.0.tick", "lapse.beat.0", "lapse.snapshot.0", "lapse.fence.0", "lapse.fence.probe",
	"lapse.config.orders",
	"lapse.drop.orders", "lapse.write.upsert.users.1", "lapse.write.delete.users.1",
	"lapse.shard.0.write.upsert.users.1", "lapse.shard.1.copy.1.config.orders",
	"lapse.expired.orders.1", "lapse.rejected.orders.1", "lapse.read.get.orders.1", "lapse.readers.READERS",
	"lapse.readers.FORWARD",
	"$KV.LAPSE_MEMBERS.lease.0", "$KV.LAPSE_CHECKPOINTS.shard.0", "$O.LAPSE_SNAPSHOTS.M.x", "$O.LAPSE_SNAPSHOTS.C.x",
	"$JS.API.STREAM.DELETE.LAPSE_LOG", "$JS.API.STREAM.PURGE.LAPSE_LOG", "$JS.API.STREAM.UPDATE.LAPSE_EVENTS",
	"$JS.API.CONSUMER.CREATE.LAPSE_LOG.x",
	"$JS.ACK.LAPSE_EVENTS.c.1.1.1.1.1", "$JS.FC.LAPSE_EVENTS.c.1", "$SRV.PING", "_INBOX.lapse.1", "_INBOX.operator.1",
}

// TestRoles_PushConsumersReachNothing: JetStream publishes the messages and the heartbeats of a push consumer with its
// own rights, where the consumer's configuration says. A writer gets no consumer, and those of a reader and of
// forwarder deliver within their accounts alone: nothing reaches a subject of the account of the streams, whatever they
// name.
//
// It goes red if an account of readers imports a subject by which something is written, or if writers have JetStream.
func TestRoles_PushConsumersReachNothing(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, testPushConsumersReachNothing)
}

func testPushConsumersReachNothing(t *testing.T, shards int) {
	w := withShards(t, shards)
	w.Configure("orders", `{"defaultTtl":-1}`)
	event := w.Want(201, wire.Create, "orders", "expires", `{"ttl":1}`) // so that there is something to deliver
	w.ExpiryOf("orders", "expires", event.Etag, harness.Limit)
	all, err := as(t, w.nats, "operator").SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range closedToOthers {
		for subject, body := range pushRequests("c", target) {
			if answer := ask(t, as(t, w.nats, "orders-writer"), subject, body); !answer.refused() {
				t.Errorf("a writer may create a consumer that delivers to %s: %s %s: %s", target, subject, body,
					answer.data)
			}
		}
	}
	for _, role := range []string{"reader", "forwarder"} {
		nc, js := as(t, w.nats, role), asJetStream(t, w.nats, role)
		w.mirrored(t, js)
		for i, target := range closedToOthers {
			for subject, body := range pushRequests(fmt.Sprintf("%s-%d", role, i), target) {
				if answer := ask(t, nc, subject, body); !strings.HasPrefix(subject,
					"$JS.API.CONSUMER.CREATE.LAPSE_EVENTS.") && !answer.refused() {
					t.Errorf("%s: %s %s: %s", role, subject, body, answer.data)
				}
			}
		}
		inbox := "_INBOX." + role + ".last" // what is delivered there comes behind what the others deliver
		last, err := nc.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreatePushConsumer(t.Context(), w.Prefix.EventsStream(),
			jetstream.ConsumerConfig{DeliverSubject: inbox, AckPolicy: jetstream.AckNonePolicy}); err != nil {
			t.Fatal(err)
		}
		if _, err := last.NextMsg(harness.Limit); err != nil {
			t.Fatal(err)
		}
	}
	if err := as(t, w.nats, "operator").Publish("_INBOX.operator.end", nil); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := all.NextMsg(harness.Limit)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject == "_INBOX.operator.end" {
			break
		}
		fed := strings.HasPrefix(m.Subject, "lapse.readers.") &&
			(strings.Contains(m.Reply, ".LAPSE_EVENTS.readers-") || m.Header.Get("Status") == "100")
		from := strings.HasPrefix(m.Reply, "$JS.ACK.") || strings.HasPrefix(m.Reply, "$JS.FC.") ||
			m.Header.Get("Status") == "100"
		if own := strings.HasPrefix(m.Subject, "_INBOX") || strings.HasPrefix(m.Subject, "$JS.S."); from && !fed &&
			!own {
			t.Errorf("JetStream delivered to %s, with the reply subject %s", m.Subject, m.Reply)
		}
	}
	w.lapse.Ready()
	w.verify()
}

// pushRequests are requests for a push consumer, by subject: of each kind that JetStream knows.
func pushRequests(name, target string) map[string]string {
	config := fmt.Sprintf(`"name":%q,"deliver_policy":"all","ack_policy":"none","idle_heartbeat":100000000,"flow_control":true`, name)
	plain := fmt.Sprintf(`{"stream_name":"LAPSE_EVENTS","config":{%s,"deliver_subject":%q}}`, config, target)
	create := "$JS.API.CONSUMER.CREATE.LAPSE_EVENTS"
	return map[string]string{
		create + "." + name: plain,
		create + "." + name +
			"-one.lapse.expired.orders.>": fmt.Sprintf(`{"stream_name":"LAPSE_EVENTS","config":{"name":%q,"ack_policy":"none","filter_subject":"lapse.expired.orders.>","deliver_subject":%q}}`,
			name+"-one", target),
		"$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_EVENTS." + name: strings.Replace(plain, `"name"`, `"durable_name"`, 1),
		"$JS.API.CONSUMER.CREATE.LAPSE_LOG." + name:            strings.Replace(plain, "LAPSE_EVENTS", "LAPSE_LOG", 1),
		"$JS.LAPSE.API.CONSUMER.CREATE.LAPSE_EVENTS." + name:   plain,
	}
}

// answer is what a request got: an answer of JetStream, or a denial.
type answer struct {
	data   []byte
	denied *credentials.Denied
}

// refused reports whether JetStream did not do what was asked.
func (a answer) refused() bool {
	var response struct{ Error *jetstream.APIError }
	return a.denied != nil || json.Unmarshal(a.data, &response) == nil && response.Error != nil
}

// ask publishes a request, and waits until it is answered or denied.
func ask(t *testing.T, nc *nats.Conn, subject, body string, headers ...string) (a answer) {
	t.Helper()
	before := nc.LastError()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	msg := &nats.Msg{Subject: subject, Reply: inbox, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		msg.Header.Set(headers[i], headers[i+1])
	}
	if err := nc.PublishMsg(msg); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, harness.Limit, "an answer to "+subject, func(context.Context) error {
		if err := nc.FlushTimeout(harness.Limit); err != nil {
			return err
		}
		if last := nc.LastError(); last != before {
			a.denied = credentials.AsDenied(last)
			return nil
		}
		m, err := sub.NextMsg(10 * time.Millisecond)
		if err == nil {
			a.data = m.Data
		}
		return err
	})
	return a
}

// TestRoles_HeadersPublishNowhere: a writer cannot make JetStream, or a server, publish for it by the headers of its
// own writes: not by a schedule, by a rollup, or by the destination of a trace.
//
// It goes red if the log allows schedules or rollups, or if a writer may do more than write.
func TestRoles_HeadersPublishNowhere(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, func(t *testing.T, shards int) {
		w := withShards(t, shards)
		w.Configure("orders", `{"defaultTtl":-1}`)
		writer := as(t, w.nats, "orders-writer")
		for i, target := range closedToOthers {
			for _, headers := range [][]string{
				{"Nats-Schedule", "@every 1s", "Nats-Schedule-Target", target},
				{"Nats-Schedule", "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target", target},
				{"Nats-Rollup", "all"},
				{"Nats-Trace-Dest", target},
				{"Nats-Trace-Dest", target, "Nats-Trace-Only", "true"},
			} {
				if a := ask(t, writer, fmt.Sprintf("lapse.write.upsert.orders.%d", i), `{}`, headers...); !a.refused() {
					t.Errorf("a write with %v: %s", headers, a.data)
				}
			}
		}
		w.verify()
	})
}

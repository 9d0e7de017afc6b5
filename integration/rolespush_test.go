package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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
	"lapse.tick", "lapse.shard.0.tick", "lapse.beat.0", "lapse.snapshot.0", "lapse.fence.0", "lapse.fence.probe", "lapse.config.orders",
	"lapse.drop.orders", "lapse.write.upsert.users.1", "lapse.write.delete.users.1", "lapse.shard.0.write.upsert.users.1", "lapse.shard.1.copy.1.config.orders",
	"lapse.expired.orders.1", "lapse.rejected.orders.1", "lapse.read.get.orders.1", "lapse.consumer.create.x",
	"$KV.LAPSE_MEMBERS.lease.0", "$KV.LAPSE_CHECKPOINTS.shard.0", "$O.LAPSE_SNAPSHOTS.M.x", "$O.LAPSE_SNAPSHOTS.C.x",
	"$JS.API.STREAM.DELETE.LAPSE_LOG", "$JS.API.STREAM.PURGE.LAPSE_LOG", "$JS.API.STREAM.UPDATE.LAPSE_EVENTS", "$JS.API.CONSUMER.CREATE.LAPSE_LOG.x",
	"$JS.ACK.LAPSE_EVENTS.c.1.1.1.1.1", "$JS.FC.LAPSE_EVENTS.c.1", "$SRV.PING", "_INBOX.lapse.1", "_INBOX.operator.1",
}

// JetStream publishes the messages and the heartbeats of a push consumer with its own rights,
// where the consumer's configuration says. No role but lapse and the operator gets one, however
// it asks: all are refused, the streams have no push consumer, and no delivery reached a subject.
//
// It goes red if an account of applications reaches $JS.API.CONSUMER.CREATE of the streams, or
// if lapse passes on what it does not know.
func TestRoles_PushConsumersAreRefused(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, testPushConsumersAreRefused)
}

func testPushConsumersAreRefused(t *testing.T, shards int) {
	w := withShards(t, shards)
	w.Configure("orders", `{"defaultTtl":-1}`)
	event := w.Want(201, wire.Create, "orders", "expires", `{"ttl":1}`) // so that there is something to deliver
	w.ExpiryOf("orders", "expires", event.Etag, harness.Limit)
	pushed := make(chan string, 100)
	all, err := as(t, w.nats, "operator").Subscribe(">", func(m *nats.Msg) {
		own := strings.HasPrefix(m.Subject, "_INBOX") || strings.HasPrefix(m.Subject, "$JS.S.")
		if own && !slices.Contains(closedToOthers, m.Subject) {
			return // what lapse fetches, and what its logs source
		}
		if m.Header.Get("Status") == "100" || strings.HasPrefix(m.Reply, "$JS.ACK.") || strings.HasPrefix(m.Reply, "$JS.FC.") {
			select {
			case pushed <- m.Subject:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"orders-writer", "reader"} {
		nc := as(t, w.nats, role)
		for i, target := range closedToOthers {
			name := fmt.Sprintf("%s-%d", role, i)
			for subject, body := range pushRequests(name, target) {
				if answer := ask(t, nc, subject, body); !answer.refused() {
					t.Errorf("%s may create a consumer that delivers to %s: %s %s: %s", role, target, subject, body, answer.data)
				}
			}
		}
	}
	for stream := range w.JS.ListStreams(t.Context()).Info() {
		s, err := w.JS.Stream(t.Context(), stream.Config.Name)
		if err != nil {
			t.Fatal(err)
		}
		for c := range s.ListConsumers(t.Context()).Info() {
			if c.Config.DeliverSubject != "" {
				t.Errorf("%s has a consumer that delivers to %s", c.Stream, c.Config.DeliverSubject)
			}
		}
	}
	if err := all.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	for range len(pushed) {
		t.Errorf("JetStream delivered to %s", <-pushed)
	}
	w.lapse.Ready()
	w.verify()
}

// pushRequests are requests for a push consumer, by subject: of each kind that JetStream knows,
// and some that hide the subject from a reader of JSON that minds the case of names.
func pushRequests(name, target string) map[string]string {
	config := fmt.Sprintf(`"name":%q,"deliver_policy":"all","ack_policy":"none","idle_heartbeat":100000000,"flow_control":true`, name)
	body := func(deliver string) string {
		return fmt.Sprintf(`{"stream_name":"LAPSE_EVENTS","config":{%s,%s}}`, config, deliver)
	}
	plain := body(fmt.Sprintf(`"deliver_subject":%q`, target))
	create := "$JS.API.CONSUMER.CREATE.LAPSE_EVENTS"
	return map[string]string{
		create:                         plain,
		create + "." + name:            plain,
		create + "." + name + "-case":  strings.Replace(body(fmt.Sprintf(`"Deliver_Subject":%q`, target)), name, name+"-case", 1),
		create + "." + name + "-twice": strings.Replace(body(fmt.Sprintf(`"deliver_subject":"","DELIVER_SUBJECT":%q`, target)), name, name+"-twice", 1),
		create + "." + name + "-config": fmt.Sprintf(`{"stream_name":"LAPSE_EVENTS","config":{"name":%q},"Config":{"deliver_subject":%q}}`,
			name+"-config", target),
		create + "." + name + "-one.lapse.expired.orders.>": fmt.Sprintf(`{"stream_name":"LAPSE_EVENTS","config":{"name":%q,"ack_policy":"none","filter_subject":"lapse.expired.orders.>","deliver_subject":%q}}`,
			name+"-one", target),
		"$JS.API.CONSUMER.DURABLE.CREATE.LAPSE_EVENTS." + name: strings.Replace(plain, `"name"`, `"durable_name"`, 1),
		"$JS.API.CONSUMER.CREATE.LAPSE_LOG." + name:            strings.Replace(plain, "LAPSE_EVENTS", "LAPSE_LOG", 1),
		"lapse.consumer.create." + name:                        plain,
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

// A writer cannot make JetStream, or a server, publish for it by the headers of its own writes:
// not by a schedule, by a rollup, or by the destination of a trace.
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

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	lapseclient "github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// mirrored waits until the account of a role has in its stream what the stream of events has.
func (w *world) mirrored(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	original, err := w.JS.Stream(t.Context(), w.Prefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	want := original.CachedInfo().State.LastSeq
	harness.Until(t, harness.Limit, "the mirror has the events", func(ctx context.Context) error {
		mirror, err := js.Stream(ctx, w.Prefix.EventsStream())
		if err == nil && mirror.CachedInfo().State.LastSeq < want {
			err = fmt.Errorf("it has %d messages of %d", mirror.CachedInfo().State.LastSeq, want)
		}
		return err
	})
}

// TestRoles_AReaderHarmsReadersAlone: a reader acknowledges what forwarder holds, changes the filter of its consumer
// and deletes it, and takes all the consumers that NATS allows. forwarder has its consumer as it was, and consumers of
// lapse can be made. lapse is ready, and says what has happened.
//
// It goes red if readers are in the account of the streams, or in that of forwarder.
func TestRoles_AReaderHarmsReadersAlone(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, testAReaderHarmsReadersAlone)
}

func testAReaderHarmsReadersAlone(t *testing.T, shards int) {
	w := withShards(t, shards)
	w.Configure("orders", `{"defaultTtl":-1}`)
	event := w.Want(201, wire.Create, "orders", "expires", `{"ttl":1}`)
	w.ExpiryOf("orders", "expires", event.Etag, harness.Limit)
	events := w.Prefix.EventsStream()
	victim, reader := asJetStream(t, w.nats, "forwarder"), asJetStream(t, w.nats, "reader")
	w.mirrored(t, victim)
	w.mirrored(t, reader)
	config := jetstream.ConsumerConfig{Durable: "forward-orders-0", AckPolicy: jetstream.AckExplicitPolicy,
		FilterSubject: "lapse.expired.orders.>"}
	consumer, err := victim.CreateConsumer(t.Context(), events, config)
	if err != nil {
		t.Fatal(err)
	}
	held, err := consumer.Next(jetstream.FetchMaxWait(harness.Limit))
	if err != nil {
		t.Fatal(err)
	}

	if err := reader.Conn().Publish(held.Reply(), nil); err != nil {
		t.Fatal(err)
	}
	config.FilterSubject = "lapse.expired.nothing.>"
	if _, err := reader.CreateConsumer(t.Context(), events, config); err != nil {
		t.Fatal(err) // one of its own, with the same name
	}
	if err := reader.DeleteConsumer(t.Context(), events, config.Durable); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for ; err == nil && taken < 1100; taken++ {
		_, err = reader.CreateConsumer(t.Context(), events, jetstream.ConsumerConfig{Name: fmt.Sprint("taken-", taken),
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true,
			InactiveThreshold: time.Hour})
	}
	if err == nil {
		t.Fatalf("a reader has made %d consumers", taken)
	}

	info, err := consumer.Info(t.Context())
	if err != nil || info.NumAckPending != 1 || info.Config.FilterSubject != "lapse.expired.orders.>" {
		t.Errorf("the consumer of forwarder is %+v, %v", info, err)
	}
	if err := held.DoubleAck(t.Context()); err != nil {
		t.Errorf("forwarder acknowledges: %v", err)
	}
	if _, err := w.JS.CreateConsumer(t.Context(), events,
		jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}); err != nil {
		t.Errorf("a consumer in the account of lapse: %v", err)
	}
	harness.Until(t, harness.Limit, "lapse says that readers have all consumers", func(ctx context.Context) error {
		m, err := w.lapse.MetricsNow()
		if err == nil && !strings.Contains(m, `lapse_problem{problem="readers"} 1`) {
			err = errors.New(m)
		}
		return err
	})
	w.lapse.Ready()
	w.verify()
}

// TestAll_Roles_AForwarderReachesItsAccountAlone: forwarder makes LAPSE_DEAD with the log and the events as its
// sources, by each way that it knows, and with a republication on a delete. It gets no message of the log, and nothing
// is deleted.
//
// It goes red if forwarder is in the account of the streams, or if that exports the right to create consumers.
func TestAll_Roles_AForwarderReachesItsAccountAlone(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, testAForwarderReachesItsAccountAlone)
}

func testAForwarderReachesItsAccountAlone(t *testing.T, shards int) {
	w := withShards(t, shards)
	w.Configure("orders", `{"defaultTtl":-1}`)
	event := w.Want(201, wire.Create, "orders", "expires", `{"ttl":1}`)
	w.Want(201, wire.Create, "orders", "stays", `{}`)
	w.ExpiryOf("orders", "expires", event.Etag, harness.Limit)
	js := asJetStream(t, w.nats, "forwarder")
	w.mirrored(t, js)
	log := w.Prefix.Log(0, shards).Stream()
	lapse := &jetstream.ExternalStream{APIPrefix: "$JS.LAPSE.API", DeliverPrefix: "lapse.dead"}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: w.Prefix.DeadStream(), Subjects: []string{"lapse.dead.*.*"},
		RePublish: &jetstream.RePublish{Source: "lapse.dead.x.x", Destination: "lapse.write.delete.orders.stays"},
		Sources: []*jetstream.StreamSource{{Name: log}, {Name: log, External: lapse},
			{Name: "LAPSE_CONFIG", External: lapse}, {Name: w.Prefix.EventsStream()}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "lapse.dead.x.x", nil); err != nil { // which is published again as the delete
		t.Fatal(err)
	}
	harness.Until(t, harness.Limit, "the source of its own account has come", func(ctx context.Context) error {
		dead, err := js.Stream(ctx, w.Prefix.DeadStream())
		if err == nil && dead.CachedInfo().State.Msgs < 2 {
			err = errors.New("nothing has")
		}
		return err
	})
	for seq := uint64(1); ; seq++ {
		reply, err := js.Conn().Request("$JS.API.STREAM.MSG.GET.LAPSE_DEAD", fmt.Appendf(nil, `{"seq":%d}`, seq),
			harness.Limit)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(reply.Data), `"error"`) {
			break
		}
		if strings.Contains(string(reply.Data), `"subject":"lapse.write`) ||
			strings.Contains(string(reply.Data), `"subject":"lapse.config`) {
			t.Errorf("it has read the log: %s", reply.Data)
		}
	}
	if !w.Found("orders", "stays") {
		t.Error("it has deleted a document")
	}
	w.lapse.Ready()
	w.verify()
}

// TestRoles_OnExpired: a reader handles events with OnExpired of the Go client, from its account: it gets one again
// that was not handled, changes the wait for acknowledgements, and gets none again that it has acknowledged.
//
// It goes red if the account or the user lacks what OnExpired needs, with either form of the subjects of
// acknowledgements.
func TestRoles_OnExpired(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, testOnExpiredAsReader)
}

func testOnExpiredAsReader(t *testing.T, shards int) {
	w := withShards(t, shards)
	w.Configure("orders", `{"defaultTtl":1}`)
	js := asJetStream(t, w.nats, "reader")
	c, err := lapseclient.Connect(lapseclient.Options{
		Server: strings.Replace(w.nats.URL(), "://", "://reader:"+harness.RolePassword("READER")+"@", 1),
		Login:  credentials.NATS{InboxPrefix: "_INBOX.reader"}, Timeout: harness.Limit,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	orders, err := lapseclient.Open[map[string]any](c, "orders")
	if err != nil {
		t.Fatal(err)
	}
	for i, wait := range []time.Duration{time.Minute, time.Hour} { // the second changes the consumer
		o := w.Want(201, wire.Create, "orders", fmt.Sprint(i), `{}`)
		w.ExpiryOf("orders", fmt.Sprint(i), o.Etag, harness.Limit)
		w.mirrored(t, js)
		ctx, stop := context.WithTimeout(t.Context(), harness.Limit)
		attempts := 0
		err = orders.OnExpired(ctx, "test", func(_ context.Context, e lapseclient.Expired[map[string]any]) error {
			if attempts = e.Attempt; e.ID != fmt.Sprint(i) {
				t.Errorf("%s came in round %d", e.ID, i)
			}
			if attempts == 1 {
				return errors.New("once more")
			}
			stop()
			return nil
		}, lapseclient.Since(time.Unix(0, 0)), lapseclient.AckWait(wait),
			lapseclient.Backoff(time.Millisecond, time.Millisecond))
		stop()
		if err != nil || attempts != 2 {
			t.Errorf("%d attempts, %v", attempts, err)
		}
	}
	consumer, err := js.Consumer(t.Context(), w.Prefix.EventsStream(), "test")
	if err != nil {
		t.Fatal(err)
	}
	harness.Until(t, harness.Limit, "all is acknowledged", func(ctx context.Context) error {
		info, err := consumer.Info(ctx)
		if err == nil && (info.NumAckPending != 0 || info.NumPending != 0 || info.Config.AckWait != time.Hour) {
			err = fmt.Errorf("%+v", info)
		}
		return err
	})
	w.verify()
}

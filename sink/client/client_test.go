package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const limit = time.Minute // on every wait

// short is how long a client waits where nothing comes. It also is the limit of the connect
// and of the acknowledgement, which may take a while on a busy machine.
const short = 3 * time.Second

func TestMain(m *testing.M) { harness.Main(m) }

// bench is a NATS server with the streams of lapse, but without lapse: the test answers in
// its place.
type bench struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	url string
}

func newBench(t *testing.T, streams bool) *bench {
	t.Helper()
	b := &bench{url: natstest.Start(t, natstest.Options{JetStream: "domain: here"})}
	b.connect(t)
	if streams {
		b.makeStreams(t)
	}
	return b
}

func (b *bench) connect(t *testing.T) {
	t.Helper()
	var err error
	if b.nc, err = nats.Connect(b.url, natstest.Patient); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.nc.Close)
	b.js = natstest.JetStream(t, b.nc)
}

// makeStreams makes the log and the stream of events.
func (b *bench) makeStreams(t *testing.T) {
	t.Helper()
	for _, config := range []jetstream.StreamConfig{{Name: wire.DefaultPrefix.LogStream(),
		Subjects: wire.DefaultPrefix.Log(0, 1).Subjects()}, eventsConfig()} {
		if _, err := b.js.CreateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
}

// eventsConfig is the configuration of a stream of events.
func eventsConfig() jetstream.StreamConfig {
	from, to := wire.DefaultPrefix.EventTransform()
	return jetstream.StreamConfig{
		Name: wire.DefaultPrefix.EventsStream(), Subjects: wire.DefaultPrefix.EventSubjects(),
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: from, Destination: to},
	}
}

func (b *bench) client(t *testing.T, timeout time.Duration) *client.Client {
	t.Helper()
	c, err := client.Connect(client.Options{Server: b.url, Prefix: wire.DefaultPrefix, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answer answers each write with an outcome, and sends the write to the channel.
func (b *bench) answer(t *testing.T, outcome string) <-chan *nats.Msg {
	t.Helper()
	seen := make(chan *nats.Msg, 10)
	sub, err := b.nc.Subscribe("lapse.write.>", func(msg *nats.Msg) {
		_ = b.nc.Publish(msg.Header.Get(wire.HeaderReplyTo), []byte(outcome))
		seen <- msg
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return seen
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v: want it to contain %q", err, part)
		}
	}
}

func TestWriteWaitsForTheOutcome(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	seen := b.answer(t, `{"status":201,"etag":"1","ts":"2026-01-31T12:00:00.000Z"}`)
	subject := wire.DefaultPrefix.Write(wire.Upsert, "orders", "42")
	result, err := b.client(t, limit).Write(t.Context(), client.Message{
		Subject: subject, Body: []byte("{}"), IfMatch: "*", ID: "m1", Traceparent: "00-1-2-01",
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.Seq != 1 || result.Outcome.Status != 201 || result.Outcome.Etag != 1 || result.Outcome.Ts != 1769860800000 {
		t.Errorf("result %+v", result)
	}
	msg := <-seen
	if !strings.HasPrefix(msg.Header.Get(wire.HeaderReplyTo), wire.ReplyPrefix) {
		t.Errorf("the outcome goes to %q: want a subject under %s", msg.Header.Get(wire.HeaderReplyTo), wire.ReplyPrefix)
	}
	msg.Header.Del(wire.HeaderReplyTo)
	want := nats.Header{"Lapse-If-Match": {"*"}, "Nats-Msg-Id": {"m1"}, "traceparent": {"00-1-2-01"}}
	if diff := cmp.Diff(want, msg.Header); diff != "" || msg.Subject != subject {
		t.Errorf("%s, headers (-want +got):\n%s", msg.Subject, diff)
	}

	again, err := b.client(t, limit).Write(t.Context(), client.Message{Subject: subject, Body: []byte("{}"), ID: "m1"})
	if err != nil || !again.Duplicate || again.Seq != 1 {
		t.Errorf("sent again: %+v, %v", again, err)
	}
}

func TestWriteWhoseAcknowledgementIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	log := jetstream.StreamConfig{Name: wire.DefaultPrefix.LogStream(), Subjects: wire.DefaultPrefix.Log(0, 1).Subjects(),
		NoAck: true}
	if _, err := b.js.CreateStream(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	b.answer(t, `{"status":200,"etag":"12"}`)
	m := client.Message{Subject: wire.DefaultPrefix.Write(wire.Upsert, "orders", "42"), Body: []byte("{}")}
	result, err := b.client(t, limit).Write(t.Context(), m)
	if err != nil || result.Seq != 12 {
		t.Errorf("result %+v, error %v: want the sequence that the etag tells", result, err)
	}
}

func TestAWriteWithoutAnOutcomeIsDurable(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	_, err := b.client(t, short).Write(t.Context(), client.Message{Subject: wire.DefaultPrefix.Write(wire.Touch, "orders",
		"42")})
	wantError(t, err, "no outcome within 3s", "durable (sequence 1", "lapse will apply or reject it")
}

func TestAnInterruptedWriteEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := b.client(t, limit).Write(ctx, client.Message{Subject: wire.DefaultPrefix.Write(wire.Touch, "orders", "42")})
		errs <- err
	}()
	stream, err := b.js.Stream(t.Context(), "LAPSE_LOG")
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(limit)
	for stored := uint64(0); stored == 0; { // each time it asks the server
		info, err := stream.Info(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the write is not stored: %v", err)
		}
		stored = info.State.Msgs
	}
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestWithoutLapse(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	c := b.client(t, 8*time.Second)
	const want = `no lapse answers at nats://127.0.0.1`
	_, err := c.Write(t.Context(), client.Message{Subject: "lapse.write.touch.orders.42"})
	wantError(t, err, want, "nothing listens on lapse.write.touch.orders.42 there",
		`Is "lapse serve" running, with the prefix "lapse"?`)
	_, err = c.Get(t.Context(), "orders", "42")
	wantError(t, err, want, "lapse.read.get.orders.42")
	_, err = c.Count(t.Context(), "orders")
	wantError(t, err, want, "lapse.read.count.orders")
	err = c.Watch(t.Context(), client.WatchOptions{}, func(client.Notification) error { return nil })
	wantError(t, err, want, "lapse.expired.>")
	if !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("error %v is not ErrUnavailable", err)
	}
}

func TestAMessageOverTheMaximumPayload(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	_, err := b.client(t, limit).Write(t.Context(), client.Message{Subject: "lapse.write.upsert.orders.42",
		Body: make([]byte, 2<<20)})
	wantError(t, err, "maximum payload of 1048576 bytes", "8 KiB less")
}

func TestAReadThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	if _, err := b.nc.SubscribeSync("lapse.read.>"); err != nil {
		t.Fatal(err)
	}
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	_, err := b.client(t, short).Config(t.Context(), "orders")
	wantError(t, err, "no reply within 3s")
}

// event publishes an expiry event, as lapse would.
func (b *bench) event(t *testing.T, collection, id string) {
	t.Helper()
	body := fmt.Sprintf(`{"id":%q,"collection":%q,"document":{"a": "<"},"etag":"7","ts":"2026-01-31T12:00:00.000Z",`+
		`"ttl":5,"expiredAt":"2026-01-31T12:00:05.000Z"}`, id, collection)
	if _, err := b.js.Publish(t.Context(), wire.DefaultPrefix.Expired(collection, id), []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) reject(t *testing.T, rest string) {
	t.Helper()
	msg := &nats.Msg{Subject: "lapse.rejected." + rest, Data: []byte("{bad"), Header: nats.Header{
		wire.HeaderCode: {"400"}, wire.HeaderError: {"wrong"}, wire.HeaderSubject: {"lapse.write.upsert." + rest},
		wire.HeaderSeq: {"12"}, wire.HeaderTruncated: {"999"},
	}}
	if _, err := b.js.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// watch calls publish once the watch can miss nothing, and collects n notifications.
func (b *bench) watch(t *testing.T, opts client.WatchOptions, n int, publish func()) (got []string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	opts.Watching = func([]string) { publish() }
	err := b.client(t, limit).Watch(ctx, opts, func(n1 client.Notification) error {
		switch {
		case n1.Expired != nil:
			got = append(got, "expired "+n1.Expired.Collection+"/"+n1.Expired.ID)
		case n1.Expiring != nil:
			got = append(got, "expiring "+n1.Expiring.Collection+"/"+n1.Expiring.ID)
		default:
			got = append(got, "rejected "+n1.Rejected.Subject)
		}
		if len(got) == n {
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestWatchFollowsTheGivenSubjects also has a document whose messages are stored under the subjects
// of another one.
func TestWatchFollowsTheGivenSubjects(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	b.event(t, "orders", "old")
	beside := ""
	stored := wire.DefaultPrefix.Stored
	for i := 0; stored("lapse.expired.orders."+beside) != stored("lapse.expired.orders.a%2Eb"); i++ {
		beside = fmt.Sprint("c", i)
	}
	all := func() {
		b.event(t, "orders", "a.b")
		b.reject(t, "orders.a%2Eb")
		b.event(t, "orders", beside)
		b.reject(t, "orders."+beside)
		b.reject(t, "orders") // a configuration
		b.reject(t, "orders.too.many")
		b.event(t, "carts", "c")
		b.reject(t, "carts.c")
		b.event(t, "last", "last")
		b.event(t, "orders", "last")
		b.event(t, "orders", "a.b")
		b.reject(t, "orders.a%2Eb")
	}
	for name, c := range map[string]struct {
		opts client.WatchOptions
		want []string
	}{
		"all": {client.WatchOptions{}, []string{"expired orders/a.b", "expired orders/" + beside, "expired carts/c",
			"expired last/last"}},
		"collection": {client.WatchOptions{Collection: "orders"}, []string{"expired orders/a.b", "expired orders/" + beside,
			"expired orders/last", "expired orders/a.b"}},
		"document": {client.WatchOptions{Collection: "orders", ID: "a.b"}, []string{"expired orders/a.b",
			"expired orders/a.b"}},
		"rejected": {client.WatchOptions{Collection: "orders", Rejected: true}, []string{
			"expired orders/a.b", "rejected lapse.write.upsert.orders.a%2Eb", "expired orders/" + beside, "rejected " +
				"lapse.write.upsert.orders." + beside,
			"rejected lapse.write.upsert.orders", "rejected lapse.write.upsert.orders.too.many", "expired orders/last"}},
		"rejected of a document": {client.WatchOptions{Collection: "orders", ID: "a.b", Rejected: true}, []string{
			"expired orders/a.b", "rejected lapse.write.upsert.orders.a%2Eb", "expired orders/a.b", "rejected " +
				"lapse.write.upsert.orders.a%2Eb"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, b.watch(t, c.opts, len(c.want), all)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("since", func(t *testing.T) {
		got := b.watch(t, client.WatchOptions{Collection: "orders", Since: new(time.Now().Add(-time.Hour))}, 1, func() {})
		if diff := cmp.Diff([]string{"expired orders/old"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWatchReturnsTheWholeRejection(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var got *client.Rejection
	err := b.client(t, limit).Watch(ctx, client.WatchOptions{Rejected: true, Watching: func([]string) {
		b.reject(t,
			"orders.1")
	}}, func(n client.Notification) error {
		got = n.Rejected
		stop()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &client.Rejection{Code: 400, Error: "wrong", Subject: "lapse.write.upsert.orders.1", Seq: 12, Body: "{bad",
		Truncated: 999}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWatchEndsWithTheErrorOfItsCaller(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	full := errors.New("disk full")
	err := b.client(t, limit).Watch(t.Context(), client.WatchOptions{Watching: func([]string) {
		b.event(t, "orders",
			"1")
	}}, func(client.Notification) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
}

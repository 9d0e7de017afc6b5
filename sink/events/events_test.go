package events

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

const prefix = wire.DefaultPrefix

var testLog = NewSource(prefix.Log(0, 1), 1_780_000_000_456)

// rig is a nats-server for one test, with a stream of events and a publisher.
type rig struct {
	t      *testing.T
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	p      *Publisher
}

func newRig(t *testing.T, opts natstest.Options, config jetstream.StreamConfig) *rig {
	t.Helper()
	js := natstest.Connect(t, opts)
	stream, err := js.CreateStream(t.Context(), eventsConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(js.Conn(), prefix, asReplicated(stream.CachedInfo().Config))
	if err != nil {
		t.Fatal(err)
	}
	if config.Replicas < 2 { // no leader is lost, and so no answer, however busy the machine is
		p.acks.limit.Store(0)
	}
	return &rig{t, js.Conn(), js, stream, p}
}

// eventsConfig completes the configuration of a stream of events. It accepts all batches if no kind
// is set.
func eventsConfig(config jetstream.StreamConfig) jetstream.StreamConfig {
	from, to := prefix.EventTransform()
	config.Name, config.Subjects, config.AllowDirect = prefix.EventsStream(), prefix.EventSubjects(), true
	config.SubjectTransform = &jetstream.SubjectTransformConfig{Source: from, Destination: to}
	if !config.AllowAtomicPublish {
		config.AllowAtomicPublish, config.AllowBatchPublish = true, true
	}
	return config
}

// asReplicated makes a publisher take a stream that accepts atomic batches alone for one with
// replicas.
func asReplicated(config jetstream.StreamConfig) jetstream.StreamConfig {
	if !config.AllowBatchPublish {
		config.Replicas = 3
	}
	return config
}

// stored is all messages of the stream, in its order.
func (r *rig) stored() []*jetstream.RawStreamMsg {
	r.t.Helper()
	info, err := r.stream.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var all []*jetstream.RawStreamMsg
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		m, err := r.stream.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func (r *rig) publish(messages ...Message) Place {
	r.t.Helper()
	at, err := r.p.Publish(r.t.Context(), r.p.Unfenced(0), messages)
	if err != nil {
		r.t.Fatal(err)
	}
	return at
}

// tail is the tail of the test's log, with all that the stream has behind a sequence.
func (r *rig) tail(from uint64) *Tail {
	r.t.Helper()
	_, last, err := r.p.Ends(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	tail := r.p.NewTail(testLog)
	tail.Hold()
	if err := tail.Cover(r.t.Context(), from, last); err != nil {
		r.t.Fatal(err)
	}
	return tail
}

// missing are the keys of the messages that a tail does not have.
func missing(tail *Tail, messages []Message) []Key {
	var keys []Key
	for _, m := range messages {
		if _, found := tail.Find(m); !found {
			keys = append(keys, m.Key)
		}
	}
	return keys
}

// isPrefix checks that the stream has some of the messages, and none without all that are before it.
func (r *rig) isPrefix(messages []Message) (stored int) {
	r.t.Helper()
	all := r.stored()
	for i, m := range all {
		if i == len(messages) || !cmp.Equal(storedKey(r.t, m), messages[i].Key) {
			r.t.Fatalf("message %d of the stream, on %s, is not the %dth that was published", m.Sequence, m.Subject, i+1)
		}
	}
	return len(all)
}

func storedKey(t *testing.T, m *jetstream.RawStreamMsg) Key {
	t.Helper()
	key, ok := testLog.keyOf(m.Subject, m.Header)
	if !ok {
		t.Fatalf("message %d, on %s, has no key", m.Sequence, m.Subject)
	}
	return key
}

func event(id string, etag uint64, document string) Message {
	return Expired(testLog, wire.Event{
		ID: id, Collection: "orders", Document: []byte(document), Etag: wire.Etag(etag),
		Ts: 1_790_000_000_123, TTL: 60, ExpiredAt: 1_790_000_060_123,
	}, "")
}

func rejection(id string, seq uint64, body string) Message {
	return Rejected(testLog, Rejection{
		Subject: "lapse.write.create.orders." + id, Rest: "orders." + id, Seq: seq, Ts: 1_790_000_000_000 + int64(seq),
		Code: 409, Error: "it exists", Body: []byte(body),
	})
}

// TestMessagesToTheByte pins what is stored in the stream: subjects, headers, bodies.
func TestMessagesToTheByte(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	const document = "{ \"a\" : \"<&>\u2028\" ,\r\n\"ttl\":60}"
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r.publish(
		Expired(testLog, wire.Event{
			ID: "a.b/é", Collection: "orders", Document: []byte(document), Etag: 42,
			Ts: 1_790_000_000_123, TTL: 60, ExpiredAt: 1_790_000_060_123,
		}, trace),
		event("x", 7, "{}"),
		Rejected(testLog, Rejection{
			Subject: "lapse.write.create.orders.a%2Eb", Rest: "orders.a%2Eb", Seq: 99, Ts: 1_790_000_000_123, Code: 409,
			Error: "a sentence", Body: []byte(document), Trace: trace,
		}),
		Rejected(testLog, Rejection{Subject: "lapse.config.orders", Rest: "orders", Seq: 100, Ts: 1_790_000_000_123,
			Code: 400, Error: "bad", Body: nil}),
	)
	expired := func(token, etag string) nats.Header {
		return nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"},
			"ce-source":  {"/lapse/1780000000456/collections/orders"},
			"ce-subject": {token}, "ce-id": {"orders/" + token +
				"/" + etag}, "ce-time": {"2026-09-21T14:14:20.123Z"}, "content-type": {"application/json"},
			"ce-datacontenttype":                  {"application/json"},
			"Nats-Expected-Stream":                {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
	}
	rejected := func(code, text, subject, seq string) nats.Header {
		return nats.Header{
			"Lapse-Code": {code}, "Lapse-Error": {text}, "Lapse-Subject": {subject}, "Lapse-Stream": {"LAPSE_LOG"},
			"Lapse-Seq": {seq},
			"Lapse-Ts":  {"2026-09-21T14:13:20.123Z"}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
	}
	want := []*jetstream.RawStreamMsg{
		{Subject: "lapse.expired.orders.1", Header: expired("a%2Eb%2F%C3%A9", "42"),
			Data: []byte(`{"id":"a.b/é","collection":"orders","document":` + document + `,"etag":"42",` +
				`"ts":"2026-09-21T14:13:20.123Z","ttl":60,"expiredAt":"2026-09-21T14:14:20.123Z"}`)},
		{Subject: "lapse.expired.orders.7", Header: expired("x", "7"),
			Data: []byte(`{"id":"x","collection":"orders","document":{},"etag":"7","ts":"2026-09-21T14:13:20.123Z","ttl":60,` +
				`"expiredAt":"2026-09-21T14:14:20.123Z"}`)},
		{Subject: "lapse.rejected.orders.8", Header: rejected("409", "a sentence", "lapse.write.create.orders.a%2Eb", "99"),
			Data: []byte(document)},
		{Subject: "lapse.rejected.orders", Header: rejected("400", "bad", "lapse.config.orders", "100")},
	}
	want[0].Header["traceparent"], want[2].Header["traceparent"] = []string{trace}, []string{trace}
	want[0].Header["ce-traceparent"] = []string{trace}
	got := r.stored()
	for i, m := range got {
		if want[i].Sequence = uint64(i + 1); m.Time.IsZero() {
			t.Errorf("message %d has no time", i)
		}
		m.Time = time.Time{}
		for _, added := range []string{"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"} {
			delete(m.Header, added) // by the server, to what is read
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// TestFence: after a new fence for a shard, the stream refuses messages with the former
// one, and no others.
//
// Goes red if a message does not carry the fence, or if all shards share one.
func TestFence(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	fence := func(shard int) Fence {
		t.Helper()
		f, err := r.p.Fence(t.Context(), shard)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	publish := func(f Fence, id string) error {
		_, err := r.p.Publish(t.Context(), f, []Message{event(id, 1, "{}")})
		return err
	}
	none, other := r.p.Unfenced(0), r.p.Unfenced(1)
	if err := publish(none, "a"); err != nil {
		t.Errorf("not fenced yet: %v", err)
	}
	first := fence(0)
	if err := publish(none, "b"); !errors.Is(err, ErrFenced) {
		t.Errorf("fenced: %v", err)
	}
	if err := publish(first, "b"); err != nil {
		t.Errorf("behind the fence: %v", err)
	}
	second := fence(0)
	if err := publish(first, "c"); !errors.Is(err, ErrFenced) {
		t.Errorf("fenced again: %v", err)
	}
	if err := publish(other, "c"); err != nil {
		t.Errorf("of another shard: %v", err)
	}
	if err := r.stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := publish(second, "d"); !errors.Is(err, ErrFenced) {
		t.Errorf("after a purge: %v", err)
	}
	if n := len(r.stored()); n != 0 {
		t.Errorf("%d messages are stored", n)
	}
	if first.Stale(0) || first.Stale(time.Hour) || !first.Stale(time.Nanosecond) || none.Stale(time.Nanosecond) {
		t.Error("a fence is stale after maxAge, if there is one; none never is")
	}
}

// TestPublishInOrder: when Publish returns, the stream has stored many messages in their
// order, and Publish knows where the last one is.
func TestPublishInOrder(t *testing.T) { everyWay(t, publishInOrder) }

func publishInOrder(t *testing.T, config jetstream.StreamConfig) {
	r := newRig(t, natstest.Options{}, config)
	if at := r.p.Last(); at != (Place{}) {
		t.Errorf("before anything is published, the last place is %s", at)
	}
	var messages []Message
	for i := range 4500 { // more than may be on their way at once
		messages = append(messages, event(strconv.Itoa(i%1500), uint64(i+1), "{}"))
	}
	want := Place{4500, Key{Kind: 'e', Seq: 4500}}
	if at := r.publish(messages...); at != want || r.p.Last() != want {
		t.Errorf("the last message is at %s and %s, want %s", at, r.p.Last(), want)
	}
	if n := r.isPrefix(messages); n != 4500 {
		t.Errorf("%d are stored, want 4500", n)
	}
	if at := r.publish(); at != (Place{}) || r.p.Last() != want {
		t.Errorf("nothing was published at %s, and the last message is at %s", at, r.p.Last())
	}
}

// TestG3_ARefusedMessageIsNotOvertaken: the stream stores no message without those that are
// published before it. Otherwise a refused event of a document could be stored behind its
// successor, and the next attempt would publish messages in another order than the log's.
//
// Goes red if Publish sends a message before the stream acknowledged the one before it.
func TestG3_ARefusedMessageIsNotOvertaken(t *testing.T) {
	large := `"` + strings.Repeat("x", 100_000) + `"`
	many := []Message{event("b", 1, "{}"), event("a", 2, large)}
	for i := range 32 {
		many = append(many, event("a", uint64(3+i), "{}"))
	}
	for name, messages := range map[string][]Message{
		"many":                    append(many, event("c", 50, "{}")),
		"a rejection, an event":   {rejection("a", 1, large), event("a", 2, "{}")},
		"an event, a rejection":   {event("b", 3, large), rejection("b", 4, "{}")},
		"events of two documents": {event("a", 1, large), event("b", 2, "{}")},
	} {
		t.Run(name, func(t *testing.T) {
			everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
				config.MaxBytes, config.Discard = 50_000, jetstream.DiscardNew
				r := newRig(t, natstest.Options{}, config)
				at, err := r.p.Publish(t.Context(), r.p.Unfenced(0), messages)
				if err == nil || at != (Place{}) || r.p.Last() != (Place{}) {
					t.Fatalf("it was not refused: %v, the last message is at %s and %s", err, at, r.p.Last())
				}
				// The stream handles messages in their order: what overtook is stored before this one.
				r.publish(event("after", 100, "{}"))
				for _, m := range r.stored() {
					if id := m.Header.Get(ceSubject); id != "after" && (id != "b" || name != "many") {
						t.Errorf("%v is stored, and a message before it is not", m.Header)
					}
				}
			})
		})
	}
}

func TestPublishErrors(t *testing.T) {
	t.Run("the stream is full", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{MaxMsgs: 2, Discard: jetstream.DiscardNew})
		r.publish(event("a", 1, "{}"), event("b", 2, "{}"))
		_, err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")})
		var api *jetstream.APIError
		if !errors.As(err, &api) || !strings.Contains(err.Error(), "maximum messages") || !strings.Contains(err.Error(),
			"lapse.expired.orders.c") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the stream is deleted", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")}); err == nil {
			t.Error("published to a stream that is not there")
		}
		if err := r.p.NewTail(testLog).Cover(t.Context(), 0, 1); err == nil {
			t.Error("read a stream that is not there")
		}
		if _, err := r.p.Holds(t.Context(), testLog, Place{1, Key{Kind: 'e', Seq: 1}}); !errors.Is(err,
			jetstream.ErrStreamNotFound) {
			t.Errorf("a stream that is not there has lost a message: %v", err)
		}
	})
	t.Run("another stream has the subjects", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER",
			Subjects: []string{"lapse.>"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")}); err == nil {
			t.Error("published to another stream")
		}
	})
	t.Run("nobody answers", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		// A subscriber takes the place of the stream, and does not answer.
		for _, subject := range []string{"lapse.expired.>", "$JS.API.DIRECT.GET.LAPSE_EVENTS"} {
			if _, err := r.nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := r.p.Publish(ctx, r.p.Unfenced(0), []Message{event("c", 3, "{}")}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("publish: %v", err)
		}
		for _, replicas := range []int{1, 3} {
			r.p.replicated.Store(replicas > 1)
			if err := r.p.NewTail(testLog).Cover(ctx, 0, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("read, of %d replicas: %v", replicas, err)
			}
		}
	})
}

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

var testLog = NewLog(prefix.Log(0, 1), 1_780_000_000_456)

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
	config.Name, config.Subjects, config.AllowDirect = prefix.EventsStream(), prefix.EventSubjects(), true
	stream, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPublisher(js.Conn(), prefix, asReplicated(stream.CachedInfo().Config))
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t, js.Conn(), js, stream, p}
}

// asReplicated makes a publisher take a stream that accepts atomic batches for one with
// replicas: there, it publishes in atomic batches always.
func asReplicated(config jetstream.StreamConfig) jetstream.StreamConfig {
	if config.AllowAtomicPublish {
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

func (r *rig) publish(messages ...Message) {
	r.t.Helper()
	if err := r.p.Publish(r.t.Context(), r.p.Unfenced(0), messages); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) unpublished(messages ...Message) []Message {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	found, err := r.p.Unpublished(ctx, r.p.Unfenced(0), messages)
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

func orders(messages []Message) []string {
	list := []string{}
	for _, m := range messages {
		list = append(list, m.msg.Subject+" "+strconv.FormatUint(m.order, 10))
	}
	return list
}

func event(id string, etag uint64, document string) Message {
	return Expired(testLog, wire.Event{
		ID: id, Collection: "orders", Document: []byte(document), Etag: wire.Etag(etag),
		Ts: 1_790_000_000_123, TTL: 60, ExpiredAt: 1_790_000_060_123,
	}, "")
}

func rejection(id string, seq uint64, body string) Message {
	return Rejected(testLog, Rejection{
		Subject: "lapse.write.create.orders." + id, Rest: "orders." + id, Seq: seq, Code: 409, Error: "it exists", Body: []byte(body),
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
			Subject: "lapse.write.create.orders.a%2Eb", Rest: "orders.a%2Eb", Seq: 99, Code: 409, Error: "a sentence", Body: []byte(document), Trace: trace,
		}),
		Rejected(testLog, Rejection{Subject: "lapse.config.orders", Rest: "orders", Seq: 100, Code: 400, Error: "bad", Body: nil}),
	)
	expired := func(id, token, etag string) nats.Header {
		unique := "orders/" + token + "/" + etag
		return nats.Header{
			"ce-specversion": {"1.0"}, "ce-type": {"lapse.document.expired.v1"}, "ce-source": {"/lapse/1780000000456/collections/orders"},
			"ce-subject": {token}, "ce-id": {unique}, "ce-time": {"2026-09-21T14:14:20.123Z"}, "content-type": {"application/json"},
			"Nats-Msg-Id": {unique}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
	}
	rejected := func(code, text, subject, seq string) nats.Header {
		return nats.Header{
			"Lapse-Code": {code}, "Lapse-Error": {text}, "Lapse-Subject": {subject}, "Lapse-Stream": {"LAPSE_LOG"}, "Lapse-Seq": {seq},
			"Nats-Msg-Id": {"rejected/" + seq}, "Nats-Expected-Stream": {"LAPSE_EVENTS"},
			"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {"lapse.fence.0"},
		}
	}
	want := []*jetstream.RawStreamMsg{
		{Subject: "lapse.expired.orders.a%2Eb%2F%C3%A9", Header: expired("a.b/é", "a%2Eb%2F%C3%A9", "42"),
			Data: []byte(`{"id":"a.b/é","collection":"orders","document":` + document + `,"etag":"42","ts":"2026-09-21T14:13:20.123Z","ttl":60,"expiredAt":"2026-09-21T14:14:20.123Z"}`)},
		{Subject: "lapse.expired.orders.x", Header: expired("x", "x", "7"),
			Data: []byte(`{"id":"x","collection":"orders","document":{},"etag":"7","ts":"2026-09-21T14:13:20.123Z","ttl":60,"expiredAt":"2026-09-21T14:14:20.123Z"}`)},
		{Subject: "lapse.rejected.orders.a%2Eb", Header: rejected("409", "a sentence", "lapse.write.create.orders.a%2Eb", "99"), Data: []byte(document)},
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

// TestFence: after a new fence for a partition, the stream refuses messages with the former
// one, and no others.
//
// Goes red if a message does not carry the fence, or if all partitions share one.
func TestFence(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	fence := func(partition int) Fence {
		t.Helper()
		f, err := r.p.Fence(t.Context(), partition)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	publish := func(f Fence, id string) error { return r.p.Publish(t.Context(), f, []Message{event(id, 1, "{}")}) }
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
		t.Errorf("of another partition: %v", err)
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
// order. It does not store again what is published again.
func TestPublishInOrder(t *testing.T) { everyWay(t, publishInOrder) }

func publishInOrder(t *testing.T, config jetstream.StreamConfig) {
	r := newRig(t, natstest.Options{}, config)
	var messages []Message
	for i := range 4500 { // more than may be on their way at once
		messages = append(messages, event(strconv.Itoa(i%1500), uint64(i+1), "{}"))
	}
	r.publish(messages...)
	for i, m := range r.stored() {
		if want := messages[i].msg.Header.Get(ceID); m.Header.Get(ceID) != want {
			t.Fatalf("message %d is %s, want %s", i, m.Header.Get(ceID), want)
		}
	}
	r.publish(messages[4490:]...)
	if n := len(r.stored()); n != 4500 {
		t.Errorf("%d are stored, want 4500", n)
	}
	r.publish()
}

// TestG3_ARefusedEventIsNotOvertaken: of two events on one subject, the stream does not store
// the second if it refused the first. Otherwise a look-up would find the second, conclude that
// the first was published, and lose it.
//
// Goes red if Publish sends a message before the stream acknowledged the one before it on its
// subject.
func TestG3_ARefusedEventIsNotOvertaken(t *testing.T) {
	everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
		config.MaxBytes, config.Discard = 50_000, jetstream.DiscardNew
		r := newRig(t, natstest.Options{}, config)
		messages := []Message{event("b", 1, "{}"), event("a", 1, `"`+strings.Repeat("x", 100_000)+`"`)}
		for i := range 32 {
			messages = append(messages, event("a", uint64(2+i), "{}"))
		}
		if err := r.p.Publish(t.Context(), r.p.Unfenced(0), append(messages, event("c", 3, "{}"))); err == nil {
			t.Fatal("it was not refused")
		}
		for _, m := range r.stored() {
			if m.Subject == "lapse.expired.orders.a" {
				t.Error("a later event is stored, and the first is not")
			}
		}
		if diff := cmp.Diff(orders(messages[1:]), orders(r.unpublished(messages[1:]...))); diff != "" {
			t.Errorf("unpublished:\n%s", diff)
		}
	})
}

// TestG4_ARefusedRejectionIsNotOvertaken: of a rejection and an event of one document, the
// stream does not store the second if it did not store the first. Otherwise the first would
// be stored behind it by the next attempt.
//
// Goes red if Publish sends a message before the stream acknowledged the one before it of the
// same document, whose subject is another.
func TestG4_ARefusedRejectionIsNotOvertaken(t *testing.T) {
	everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
		config.MaxBytes, config.Discard = 50_000, jetstream.DiscardNew
		r := newRig(t, natstest.Options{}, config)
		large := `"` + strings.Repeat("x", 100_000) + `"`
		for _, messages := range [][]Message{
			{rejection("a", 1, large), event("a", 2, "{}")},
			{event("b", 3, large), rejection("b", 4, "{}")},
		} {
			if err := r.p.Publish(t.Context(), r.p.Unfenced(0), messages); err == nil {
				t.Fatal("it was not refused")
			}
		}
		// The stream handles messages in their order: what overtook is stored before this one.
		r.publish(event("c", 5, "{}"))
		for _, m := range r.stored() {
			if m.Subject != "lapse.expired.orders.c" {
				t.Errorf("%s is stored, and the message before it is not", m.Subject)
			}
		}
	})
}

func TestPublishErrors(t *testing.T) {
	t.Run("the stream is full", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{MaxMsgs: 2, Discard: jetstream.DiscardNew})
		r.publish(event("a", 1, "{}"), event("b", 2, "{}"))
		err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")})
		var api *jetstream.APIError
		if !errors.As(err, &api) || !strings.Contains(err.Error(), "maximum messages") || !strings.Contains(err.Error(), "lapse.expired.orders.c") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the stream is deleted", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		if err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")}); err == nil {
			t.Error("published to a stream that is not there")
		}
		if _, err := r.p.Unpublished(t.Context(), Fence{}, []Message{event("c", 3, "{}")}); err == nil {
			t.Error("looked up in a stream that is not there")
		}
	})
	t.Run("another stream has the subjects", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
		if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"lapse.>"}}); err != nil {
			t.Fatal(err)
		}
		if err := r.p.Publish(t.Context(), r.p.Unfenced(0), []Message{event("c", 3, "{}")}); err == nil {
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
		if err := r.p.Publish(ctx, r.p.Unfenced(0), []Message{event("c", 3, "{}")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("publish: %v", err)
		}
		for _, replicas := range []int{1, 3} {
			r.p.replicated.Store(replicas > 1)
			if _, err := r.p.Unpublished(ctx, Fence{}, []Message{event("c", 3, "{}")}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("unpublished, of %d replicas: %v", replicas, err)
			}
		}
	})
}

// TestUnpublished looks up more subjects than fit one request, several messages on some.
func TestUnpublished(t *testing.T) {
	r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
	var published, asked, want []Message
	for i := range 2200 {
		id := strconv.Itoa(i)
		switch i % 4 {
		case 0: // none was published
			asked, want = append(asked, event(id, 5, "{}")), append(want, event(id, 5, "{}"))
		case 1: // only the first was published
			published = append(published, event(id, 5, "{}"))
			asked = append(asked, event(id, 5, "{}"), event(id, 6, "{}"), event(id, 9, "{}"))
			want = append(want, event(id, 6, "{}"), event(id, 9, "{}"))
		case 2: // all were published
			published = append(published, event(id, 5, "{}"), event(id, 10, "{}"))
			asked = append(asked, event(id, 5, "{}"), event(id, 10, "{}"))
		case 3: // rejections, each of a message of its own
			first, second := rejection(id, uint64(10*i), ""), rejection(id, uint64(10*i+1), "")
			published = append(published, first)
			asked = append(asked, first, second, event(id, 1, "{}"))
			want = append(want, second, event(id, 1, "{}"))
		}
	}
	if diff := cmp.Diff(orders(asked), orders(r.unpublished(asked...))); diff != "" {
		t.Errorf("of an empty stream:\n%s", diff)
	}
	r.publish(published...)
	if diff := cmp.Diff(orders(want), orders(r.unpublished(asked...))); diff != "" {
		t.Error(diff)
	}
	if found := r.unpublished(); len(found) != 0 {
		t.Errorf("of nothing, %d are unpublished", len(found))
	}
}

// TestG3_AReplicaThatLagsIsNotBelieved: a look-up behind a fence waits until the replica that
// answers has stored the fence, and finds everything before it.
//
// Goes red if a look-up believes an answer without the fence.
func TestG3_AReplicaThatLagsIsNotBelieved(t *testing.T) {
	for _, before := range []int{0, 1} { // messages that the replica has when it is asked
		r := newRig(t, natstest.Options{}, atomicBatches)
		lags := r.p.fence(0, 3) // as if the fence were the third message of the stream
		messages := []Message{event("a", 1, "{}"), event("b", 1, "{}"), event("c", 1, "{}")}
		r.publish(messages[:before]...)
		asked := make(chan struct{}, 1000)
		if _, err := r.nc.Subscribe("$JS.API.DIRECT.GET.LAPSE_EVENTS", func(*nats.Msg) { asked <- struct{}{} }); err != nil {
			t.Fatal(err)
		}
		done := make(chan []Message, 1)
		go func() {
			found, err := r.p.Unpublished(t.Context(), lags, messages)
			if err != nil && !errors.Is(err, ErrNoFence) { // as a busy machine looks for it for long
				t.Error(err)
			}
			done <- found
		}()
		for range 2 { // the first answer was not believed
			<-asked
		}
		for _, m := range messages[before:] {
			r.publish(m)
		}
		if found := <-done; len(found) != 0 {
			t.Errorf("%d of %d are reported as unpublished", len(found), len(messages))
		}
	}
}

// TestG3_TheFenceIsGone: somebody has purged the stream. A look-up says so, and finds nothing
// stored behind a new fence.
//
// Goes red if a look-up waits for a replica that has the fence.
func TestG3_TheFenceIsGone(t *testing.T) {
	for name, config := range map[string]jetstream.StreamConfig{"one replica": {}, "replicas": atomicBatches} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, natstest.Options{}, config)
			fence := func() Fence {
				f, err := r.p.Fence(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				return f
			}
			messages := []Message{event("a", 1, "{}")}
			r.publish(messages...)
			old := fence()
			if err := r.stream.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.p.Unpublished(t.Context(), old, messages); !errors.Is(err, ErrNoFence) {
				t.Errorf("%v, want %v", err, ErrNoFence)
			}
			if found, err := r.p.Unpublished(t.Context(), fence(), messages); err != nil || len(found) != 1 {
				t.Errorf("%d messages are not stored, want 1: %v", len(found), err)
			}
		})
	}
}

// TestG3_ACutAnswerLosesNothing: the server cuts an answer that is too long. The publisher asks
// for the rest, and does not take it for unpublished.
//
// Goes red if askBulk ignores how many messages are pending at the end of an answer.
func TestG3_ACutAnswerLosesNothing(t *testing.T) {
	for _, large := range []int{4, 20} {
		t.Run(strconv.Itoa(large), func(t *testing.T) {
			r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
			var messages []Message
			for i := range 200 {
				size := 10
				if i%10 == 0 && i/10 < large {
					size = 1_000_000
				}
				messages = append(messages, event(strconv.Itoa(i), uint64(i+1), `"`+strings.Repeat("x", size)+`"`))
			}
			r.publish(messages...)
			if found := r.unpublished(messages...); len(found) > 0 {
				t.Errorf("%d of %d are reported as unpublished, the first %s", len(found), len(messages), found[0].msg.Subject)
			}
		})
	}
}

// TestMalformedStoredHeaders: if the order of the last message on a subject cannot be read, the
// look-up returns an error, and does not take the subject for empty.
func TestMalformedStoredHeaders(t *testing.T) {
	for name, header := range map[string]nats.Header{
		"none":               nil,
		"others":             {"A": {"b"}},
		"no number":          {ceID: {"orders/a/x"}},
		"an empty number":    {ceID: {"orders/a/"}},
		"a sequence of none": {wire.HeaderSeq: {"-1"}},
		"too large":          {wire.HeaderSeq: {"18446744073709551616"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, natstest.Options{}, jetstream.StreamConfig{})
			m := event("a", 3, "{}")
			if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: m.msg.Subject, Header: header}); err != nil {
				t.Fatal(err)
			}
			for _, replicas := range []int{1, 3} {
				r.p.replicated.Store(replicas > 1)
				if found, err := r.p.Unpublished(t.Context(), Fence{}, []Message{event("b", 1, "{}"), m}); err == nil {
					t.Errorf("%d replicas: %d are unpublished, without an error", replicas, len(found))
				}
			}
		})
	}
}

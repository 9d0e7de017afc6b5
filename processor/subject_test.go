package processor

import (
	"errors"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// oddSubjects have a token that is empty, or too few of them.
var oddSubjects = []string{
	"lapse.write.upsert..42", "lapse.write.upsert.orders.", "lapse.write.upsert..", "lapse.write..orders.42",
	"lapse.write.upsert.orders.a..b",
	"lapse.write.", "lapse.config.", "lapse.config..", "lapse.config.orders.", "lapse.drop.", "lapse.drop..orders",
}

// TestG8_NATSRefusesAnEmptyToken: a subject with an empty token matches no stream. Its
// client gets no acknowledgement, so no acknowledged message is lost.
//
// It fails if a server stores one after all: then its rejection has to be in the stream.
func TestG8_NATSRefusesAnEmptyToken(t *testing.T) {
	r := newRig(t)
	p := r.run()
	for _, subject := range oddSubjects {
		if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: []byte(`{}`)},
			jetstream.WithRetryAttempts(0)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Errorf("%s: %v, want that no stream takes it", subject, err)
		}
	}
	r.caughtUp(p)
	if published := r.outputs(); len(published) != 0 {
		t.Errorf("the stream of events has %v", published)
	}
}

// TestG8_AnEmptyTokenIsRejected: if such a subject comes to the log all the same, its
// rejection has a subject that can be published, and that no other has.
// TestG8_AnEmptyTokenIsNamed checks the reason.
//
// It fails if the rejection's subject is made of the original's as it is.
func TestG8_AnEmptyTokenIsRejected(t *testing.T) {
	r := newRig(t)
	r.run().stop(t) // the streams are there
	publisher, err := events.NewPublisher(r.nc, prefix, jetstream.StreamConfig{Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer publisher.Close()
	d := fold.New(fold.Limits{Log: events.NewSource(prefix.Log(0, 1), 1), MaxBody: 1000}, fold.NewCollections(nil, nil), 0)
	for i, subject := range oddSubjects {
		m := fold.Decoder{Log: prefix.Log(0, 1), MaxBody: 1000, MaxLevels: 10}.Decode(subject, nil, []byte(`{}`),
			fold.Position{Seq: uint64(i + 1), Time: 1000})
		if m.Rejected == nil || m.Rejected.Code != wire.StatusBadRequest {
			t.Fatalf("%s: %+v", subject, m.Rejected)
		}
		d.Apply(m)
	}
	for _, o := range d.Outputs {
		if _, err := publisher.Publish(t.Context(), publisher.Unfenced(1000), []events.Message{o.Message}); err != nil {
			t.Fatal(err)
		}
	}
	published := r.outputs()
	if len(published) != len(oddSubjects) {
		t.Fatalf("%d rejections of %d are stored", len(published), len(oddSubjects))
	}
	for i, m := range published {
		if m.header.Get(wire.HeaderSubject) != oddSubjects[i] || m.header.Get(wire.HeaderSeq) != strconv.Itoa(i+1) ||
			string(m.data) != `{}` {
			t.Errorf("%s is rejected on %s with %v", oddSubjects[i], m.subject, m.header)
		}
	}
}

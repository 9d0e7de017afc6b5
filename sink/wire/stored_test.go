package wire_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// storedSubject publishes a message, and returns the subject under which the log stored it.
func storedSubject(
	ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, subject string,
) (string, error) {
	ack, err := js.Publish(ctx, subject, nil)
	if err != nil {
		return "", fmt.Errorf("publish %q: %w", subject, err)
	}
	msg, err := stream.GetMsg(ctx, ack.Sequence)
	if err != nil {
		return "", fmt.Errorf("get %q: %w", subject, err)
	}
	return msg.Subject, nil
}

// TestG1_ShardOf pins the shards of some documents. Readers would not find a document that an
// earlier version stored if its shard changed.
//
// Goes red if ShardOf hashes anything but the collection and the escaped id, or uses another hash.
func TestG1_ShardOf(t *testing.T) {
	for _, known := range []struct {
		collection, id string
		in16, in64     int
	}{
		{"orders", "1", 7, 39},
		{"orders", "a.b/é", 8, 24},
		{"c", "x", 14, 30},
	} {
		token := wire.EscapeID(known.id)
		if p, q := wire.ShardOf(16, known.collection, token), wire.ShardOf(64, known.collection, token); p != known.in16 ||
			q != known.in64 {
			t.Errorf("%s/%s is in %d of 16 and %d of 64, want %d and %d", known.collection, known.id, p, q, known.in16,
				known.in64)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, wire.MaxShards).Draw(t, "n")
		collection := rapid.StringMatching(`[A-Za-z0-9_-]{1,128}`).Draw(t, "collection")
		id := rapid.OneOf(
			rapid.StringN(1, 60, wire.MaxID),
			rapid.StringMatching(`[.*>% {}$()~:@+=,a-z]{1,255}`),
		).Draw(t, "id")
		h := fnv.New32a()
		_, _ = h.Write([]byte(collection + wire.EscapeID(id)))
		want := int(h.Sum32() % uint32(n))
		if p := wire.ShardOf(n, collection, wire.EscapeID(id)); p != want {
			t.Fatalf("%s/%s is in %d of %d, want %d", collection, id, p, n, want)
		}
	})
}

// TestG8_MalformedWritesAreStored: the log stores a write with a dot in its id, and one with a
// token too few, so that lapse can reject them.
//
// Goes red if LogSubjects does not match them.
func TestG8_MalformedWritesAreStored(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	p := wire.DefaultPrefix
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: p.LogStream(), Subjects: p.Log(0, 1).Subjects(), Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{
		"lapse.write.upsert.orders.a",
		"lapse.write.upsert.orders.a.b",
		"lapse.write.upsert.orders.a.b.c.d.e",
		"lapse.write.upsert.orders",
		"lapse.write.upsert",
		"lapse.config.orders",
		"lapse.config.orders.more",
		"lapse.drop.orders",
		"lapse.tick",
	} {
		if got, err := storedSubject(t.Context(), js, stream, subject); err != nil || got != subject {
			t.Errorf("%q is stored as %q, %v", subject, got, err)
		}
	}
}

// TestRejectedIsStored publishes rejections of hostile subjects to a stream of events, to prove
// that a server accepts them.
func TestRejectedIsStored(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	p := wire.DefaultPrefix
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: p.EventsStream(), Subjects: p.EventSubjects(), Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	rests := []string{strings.Repeat("a.", 2000), strings.Repeat("*", 5000)}
	for _, tt := range hostile {
		rests = append(rests, tt.rest)
	}
	for _, rest := range rests {
		want := p.Rejected(rest)
		if got, err := storedSubject(t.Context(), js, stream, want); err != nil || got != want {
			t.Errorf("the rejection of %.40q is stored as %.80q, %v", rest, got, err)
		}
	}
}

// TestG3_StoredSubjects: a real stream with the transform stores what is published on each subject
// of an event, a rejection or a fence under the subject that Stored computes.
//
// Goes red if Stored uses another hash or number of buckets than the transform, or changes a
// subject that the transform keeps.
func TestG3_StoredSubjects(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	const prefix = wire.Prefix("odd-Prefix_1")
	from, to := prefix.EventTransform()
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: prefix.EventsStream(), Subjects: prefix.EventSubjects(),
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: from, Destination: to},
	})
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]bool{}
	check := func(subject string) error {
		got, err := storedSubject(t.Context(), js, stream, subject)
		if err == nil && got != prefix.Stored(subject) {
			err = fmt.Errorf("%q is stored under %q, and Stored tells %q", subject, got, prefix.Stored(subject))
		}
		stored[got] = true
		return err
	}
	for _, subject := range []string{
		prefix.Fence(0), prefix.Fence(wire.MaxShards - 1), prefix.Barrier(), prefix.Filling(),
		prefix.Rejected("orders"), prefix.Rejected(""), prefix.Rejected("a.b.c"), prefix.Rejected("a..b"),
		prefix.Rejected(strings.Repeat("x", 3000)),
	} {
		if err := check(subject); err != nil {
			t.Error(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		collection := rapid.StringMatching(`[A-Za-z0-9_-]{1,128}`).Draw(t, "collection")
		id := rapid.OneOf(
			rapid.StringN(1, 60, wire.MaxID),
			rapid.StringMatching(`[.*>% {}$()~:@+=,a-z]{1,255}`),
		).Draw(t, "id")
		rest := rapid.OneOf(rapid.Just(collection+"."+wire.EscapeID(id)), rapid.String(),
			rapid.StringMatching(`[a-c.*>%]{0,12}`)).Draw(t, "rest")
		for _, subject := range []string{prefix.Expired(collection, id), prefix.Rejected(rest)} {
			if err := check(subject); err != nil {
				t.Fatal(err)
			}
		}
	})
	buckets := 0
	for i := range 1000 {
		subject := prefix.Expired("orders", strconv.Itoa(i))
		if err := check(subject); err != nil {
			t.Fatal(err)
		}
	}
	for subject := range stored {
		if strings.HasPrefix(subject, string(prefix)+".expired.orders.") {
			buckets++
		}
	}
	if buckets != 16 {
		t.Errorf("1000 ids of a collection have %d subjects", buckets)
	}
}

package wire_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startServer runs a nats-server of its own for a test.
func startServer(t *testing.T) jetstream.JetStream {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// createLog makes the log as lapse makes it, as far as subjects go.
func createLog(t *testing.T, js jetstream.JetStream, p wire.Prefix, partitions int) jetstream.Stream {
	t.Helper()
	source, destination := p.LogTransform(partitions)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name:             p.LogStream(),
		Subjects:         p.LogSubjects(),
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: source, Destination: destination},
		Storage:          jetstream.MemoryStorage,
		AllowDirect:      true,
	})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// storedSubject publishes and says under which subject the log has stored it.
func storedSubject(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, subject string) (string, error) {
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

// TestG1_PartitionIsWhatTheServerComputes publishes writes to real servers' logs of
// several widths: the partition in the stored subject is Partition's, and the
// rest of the subject is what was published. A write that went to another
// partition than its reader looks in would be lost to it.
//
// Goes red if Partition hashes anything but the collection and the escaped id, or
// if LogTransform hashes or keeps other tokens.
func TestG1_PartitionIsWhatTheServerComputes(t *testing.T) {
	js := startServer(t)
	for _, n := range []int{1, 2, 16, 1000, 1024} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			p, err := wire.ParsePrefix("p" + strconv.Itoa(n))
			if err != nil {
				t.Fatal(err)
			}
			stream := createLog(t, js, p, n)
			check := func(t *rapid.T, op wire.Op, collection, id string) {
				subject := p.Write(op, collection, id)
				got, err := storedSubject(context.Background(), js, stream, subject)
				if err != nil {
					t.Fatal(err)
				}
				partition := wire.Partition(n, collection, id)
				want := fmt.Sprintf("%s.log.%d.%s.%s.%s", p, partition, op, collection, wire.EscapeID(id))
				if got != want {
					t.Fatalf("%q is stored as %q, want %q", subject, got, want)
				}
				if partition < 0 || partition >= n {
					t.Fatalf("partition %d of %d", partition, n)
				}
			}
			rapid.Check(t, func(t *rapid.T) {
				op := rapid.SampledFrom(wire.Ops).Draw(t, "op")
				collection := rapid.StringMatching(`[A-Za-z0-9_-]{1,128}`).Draw(t, "collection")
				id := rapid.OneOf(
					rapid.StringN(1, 60, wire.MaxID),
					rapid.StringMatching(`[.*>% {}$()~:@+=,a-z]{1,255}`),
				).Draw(t, "id")
				check(t, op, collection, id)
			})
		})
	}
}

// Ids spread over partitions: the hash has no need to be good, but may not be bad.
func TestPartitionSpreads(t *testing.T) {
	const n, ids = 16, 16_000
	var counts [n]int
	for i := range ids {
		counts[wire.Partition(n, "orders", strconv.Itoa(i))]++
	}
	for partition, count := range counts {
		if count < ids/n/2 || count > ids/n*2 {
			t.Errorf("partition %d has %d of %d ids", partition, count, ids)
		}
	}
}

// TestG8_MalformedWritesAreStoredAsTheyAre: a write with a dot in its id, and one
// with a token too few, come into the log with their subjects unchanged, where
// they can be told apart from others and be rejected.
//
// Goes red if LogTransform's source takes them too, or LogSubjects does not.
func TestG8_MalformedWritesAreStoredAsTheyAre(t *testing.T) {
	js := startServer(t)
	p := wire.DefaultPrefix
	stream := createLog(t, js, p, 16)
	for _, subject := range []string{
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
	// Nobody can go round the transform.
	if _, err := js.Publish(t.Context(), "lapse.log.3.upsert.orders.a", nil, jetstream.WithRetryAttempts(0)); err == nil {
		t.Error("lapse.log.3.upsert.orders.a was taken as it is")
	}
}

// TestRejectedIsStored publishes rejections of hostile subjects to a stream of
// events, as proof that the server agrees with its own check.
func TestRejectedIsStored(t *testing.T) {
	js := startServer(t)
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

// A process that owns partition 3 alone reads it, the malformed writes, and all
// configuration, drops and ticks, in log order, and no other partition.
func TestOneConsumerReadsItsShareOfTheLog(t *testing.T) {
	js := startServer(t)
	const partitions, own = 16, 3
	p := wire.DefaultPrefix
	stream := createLog(t, js, p, partitions)

	var want []string
	publish := func(subject, stored string, mine bool) {
		t.Helper()
		if _, err := js.Publish(t.Context(), subject, nil); err != nil {
			t.Fatalf("publish %q: %v", subject, err)
		}
		if mine {
			want = append(want, stored)
		}
	}
	same := func(subject string) { t.Helper(); publish(subject, subject, true) }
	same(p.Config("orders"))
	mine := 0
	for i := 0; mine < 5; i++ {
		id := "a." + strconv.Itoa(i)
		partition := wire.Partition(partitions, "orders", id)
		stored := fmt.Sprintf("lapse.log.%d.upsert.orders.%s", partition, wire.EscapeID(id))
		publish(p.Write(wire.Upsert, "orders", id), stored, partition == own)
		if partition == own {
			mine++
		}
	}
	same("lapse.write.upsert.orders.dotted.id")
	same("lapse.write.upsert")
	same(p.Drop("orders"))
	same(p.Tick())

	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{
			string(p) + ".log." + strconv.Itoa(own) + ".>",
			string(p) + ".write.>", string(p) + ".config.>", string(p) + ".drop.>", string(p) + ".tick",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Stop()
	var got []string
	// The tick was published last, and every consumer gets ticks: it ends the log.
	for !slices.Contains(got, p.Tick()) {
		msg, err := messages.Next(jetstream.NextMaxWait(10 * time.Second))
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		got = append(got, msg.Subject())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

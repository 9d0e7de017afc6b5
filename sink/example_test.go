package sink_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// A Reader needs a connection to the Redis that lapse writes to, and nothing else.
func ExampleReader() {
	server := exampleServer()
	defer server.Close()
	client := redis.NewClient(&redis.Options{Dialer: server.Dial})
	defer func() { _ = client.Close() }()

	reader, err := sink.NewReader(client, sink.ReaderOptions{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	session, err := reader.Get(ctx, "sessions", "anna")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s expires at %s\n", session.Body, session.ExpiresAt)

	server.SetTime(time.UnixMilli(int64(*session.ExpiresAt))) // from this instant on, no read returns it
	_, err = reader.Get(ctx, "sessions", "anna")
	fmt.Println("after that:", err, errors.Is(err, sink.ErrNotFound))
	// Output:
	// {"user":"anna"} expires at 2026-05-01T12:30:00.000Z
	// after that: document not found true
}

// A list comes in pages, each with the continuation of the next.
func ExampleReader_List() {
	server := exampleServer()
	defer server.Close()
	client := redis.NewClient(&redis.Options{Dialer: server.Dial})
	defer func() { _ = client.Close() }()
	reader, err := sink.NewReader(client, sink.ReaderOptions{})
	if err != nil {
		log.Fatal(err)
	}

	opts := sink.ListOptions{Limit: 2}
	for {
		page, err := reader.List(context.Background(), "sessions", opts)
		if err != nil {
			log.Fatal(err)
		}
		for _, session := range page.Documents {
			fmt.Println(session.ID)
		}
		if opts.Continuation = page.Continuation; opts.Continuation == "" {
			break
		}
	}
	// Unordered output:
	// anna
	// ben
	// carla
}

// A forecast counts the documents that will expire, without reading them.
func ExampleReader_Forecast() {
	server := exampleServer()
	defer server.Close()
	client := redis.NewClient(&redis.Options{Dialer: server.Dial})
	defer func() { _ = client.Close() }()
	reader, err := sink.NewReader(client, sink.ReaderOptions{})
	if err != nil {
		log.Fatal(err)
	}

	forecast, err := reader.Forecast(context.Background(), "sessions", sink.ForecastOptions{Buckets: 2, Within: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	for _, bucket := range forecast.Buckets {
		fmt.Printf("until %s: %d\n", bucket.Until, bucket.Count)
	}
	// Output:
	// until 2026-05-01T12:30:00.000Z: 2
	// until 2026-05-01T13:00:00.000Z: 1
}

// exampleServer is a Redis with three sessions, written at noon. In production, the
// processor of lapse writes them.
func exampleServer() *embedded.Server {
	server := embedded.New(nil)
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	server.SetTime(noon)
	client := redis.NewClient(&redis.Options{Dialer: server.Dial})
	defer func() { _ = client.Close() }()

	ctx := context.Background()
	sessions := store.CollectionChanges{Collection: "sessions"}
	for i, session := range []struct {
		user string
		ttl  ttlrules.TTL
	}{{"anna", ttlrules.Inherit}, {"ben", ttlrules.Inherit}, {"carla", 3600}} {
		sessions.Changes = append(sessions.Changes, store.Change{
			ID:   session.user,
			New:  &store.Header{Ts: noon.UnixMilli(), Etag: uint64(i + 1), TTL: session.ttl},
			Body: fmt.Appendf(nil, `{"user":%q}`, session.user),
		})
	}
	halfAnHour := store.Config{History: ttlrules.History{}.With(noon.UnixMilli(), 1, 1800)}
	shard := store.New(client, "lapse", 0, 1)
	if err := shard.Take(ctx, store.State{Log: "log"}, "v0", 0); err != nil {
		log.Fatal(err)
	}
	step := store.Progress{Version: "v0", Next: "v1", Offset: 3, Watermark: noon.UnixMilli()}
	err := shard.Commit(ctx, step, []store.ConfigChange{{Collection: "sessions", Config: &halfAnHour}},
		[]store.CollectionChanges{sessions})
	if err != nil {
		log.Fatal(err)
	}
	return server
}

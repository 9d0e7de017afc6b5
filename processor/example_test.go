package processor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/wire"
)

func ExampleNew() {
	nc, stopNATS := embeddedNATS()
	defer stopNATS()
	store := embedded.New(nil)
	defer store.Close()
	client := redis.NewClient(&redis.Options{Dialer: store.Dial, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()

	p, err := processor.New(nc, client, processor.Options{})
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	waitReady(p) // it creates the streams, and takes the shards over

	// From here on any NATS client will do.
	expired, err := nc.SubscribeSync("lapse.expired.orders.*")
	must(err)
	send := func(subject, body string) {
		_, err := nc.Request(subject, []byte(body), time.Minute) // returns the acknowledgement of the log
		must(err)
	}
	send("lapse.config.orders", `{"defaultTtl": 1}`)
	send("lapse.write.upsert.orders.42", `{"item": "tea"}`)
	msg, err := expired.NextMsg(time.Minute)
	must(err)
	var event wire.Event
	must(json.Unmarshal(msg.Data, &event))
	fmt.Printf("%s %s after %d s: %s\n", event.Collection, event.ID, event.TTL, event.Document)

	stop()
	must(<-ended)
	// Output: orders 42 after 1 s: {"item": "tea"}
}

func waitReady(p *processor.Processor) {
	limit, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for p.Ready() != nil {
		select {
		case <-limit:
			log.Fatal(p.Ready())
		case <-tick.C:
		}
	}
}

func embeddedNATS() (nc *nats.Conn, stop func()) {
	dir, err := os.MkdirTemp("", "lapse")
	must(err)
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true,
		NoSigs: true})
	must(err)
	srv.Start()
	if !srv.ReadyForConnections(30 * time.Second) {
		log.Fatal("nats-server is not ready")
	}
	closed := make(chan struct{})
	nc, err = nats.Connect(srv.ClientURL(), nats.Timeout(time.Minute),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	must(err)
	return nc, func() { nc.Close(); <-closed; srv.Shutdown(); srv.WaitForShutdown(); must(os.RemoveAll(dir)) }
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

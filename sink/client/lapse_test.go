package client_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// startLapse runs lapse in this process, on an embedded NATS server and an embedded Redis.
// It is for the example, which has no testing.T.
func startLapse() (url string, stop func()) {
	var undo []func()
	stop = func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "lapse")
	must(err)
	undo = append(undo, func() { _ = os.RemoveAll(dir) })

	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	must(err)
	srv.Start()
	undo = append(undo, func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(30 * time.Second) {
		log.Fatal("nats-server is not ready")
	}
	nc, err := nats.Connect(srv.ClientURL(), nats.Timeout(time.Minute))
	must(err)
	closed := make(chan struct{}) // once the goroutines of the connection have ended
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	undo = append(undo, func() { nc.Close(); <-closed })

	store, err := embedded.Start("127.0.0.1:0")
	must(err)
	undo = append(undo, store.Close)
	rdb := redis.NewClient(&redis.Options{Addr: store.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	undo = append(undo, func() { _ = rdb.Close() })

	proc, err := processor.New(nc, rdb, processor.Options{})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- proc.Run(ctx) }()
	undo = append(undo, func() { cancel(); must(<-ended) })

	reader, err := sink.NewReader(rdb, sink.ReaderOptions{Prefix: wire.DefaultPrefix})
	must(err)
	reads, err := service.Start(nc, reader, service.Options{})
	must(err)
	undo = append(undo, reads.Stop)

	limit, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for proc.Ready() != nil {
		select {
		case <-limit:
			log.Fatal(proc.Ready())
		case <-tick.C:
		}
	}
	return srv.ClientURL(), stop
}

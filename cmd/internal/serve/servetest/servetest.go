// Package servetest runs `lapse serve` in the process of a test.
package servetest

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/sink/wire"
)

// limit is the longest that a test waits.
const limit = time.Minute

// Lapse is a lapse that serves.
type Lapse struct {
	NATS, Redis, HTTP string // the addresses of the ready file
	Data              string // its directory
	Stop              func() // ends lapse and waits; stopping twice is fine
}

// Start runs lapse until the test ends, and returns when it is ready. NATS and Redis are embedded, a write makes a
// collection, and nothing is logged, unless set changes that.
func Start(t testing.TB, set ...func(*serve.Options)) *Lapse {
	t.Helper()
	opts := serve.Options{
		Version: "0.0.0", Logger: slog.New(slog.DiscardHandler),
		NATSListen: "127.0.0.1:0", RedisListen: "127.0.0.1:0", HTTP: web.Options{Listen: "127.0.0.1:0"},
		NATSSync: time.Second, Data: t.TempDir(), ReadyFile: filepath.Join(t.TempDir(), "ready"),
	}
	opts.Processor.Prefix, opts.Processor.OpenCollections = wire.DefaultPrefix, true
	for _, f := range set {
		f(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var err error // once it has ended
	go func() {
		defer close(ended)
		err = serve.Run(ctx, opts)
	}()
	l := &Lapse{Data: opts.Data, Stop: sync.OnceFunc(func() {
		cancel()
		if <-ended; err != nil {
			t.Errorf("lapse: %v", err)
		}
	})}
	t.Cleanup(l.Stop)
	again, deadline := time.NewTicker(5*time.Millisecond), time.After(limit)
	defer again.Stop()
	for {
		if ready, err := os.ReadFile(opts.ReadyFile); err == nil {
			if err := json.Unmarshal(ready, l); err != nil {
				t.Fatal(err)
			}
			return l
		}
		select {
		case <-again.C:
		case <-ended:
			t.Fatalf("lapse has ended: %v", err)
		case <-deadline:
			t.Fatalf("lapse is not ready after %v", limit)
		}
	}
}

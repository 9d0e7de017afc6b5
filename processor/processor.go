package processor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/wire"
)

// Options are what a Processor is made with. The zero value of each is its default.
type Options struct {
	Prefix     wire.Prefix           // "lapse"
	Partitions int                   // 16; 1 to 1024; fixed when the log is created
	Logger     *slog.Logger          // none
	Metrics    prometheus.Registerer // none

	// What follows counts when a stream is created. On one that is there already it
	// is compared, and changed, only if it is set.
	Replicas        int            // 1
	LogMaxAge       *time.Duration // for ever
	LogMaxBytes     *int64         // no limit (-1)
	EventsMaxAge    *time.Duration // 7 days
	DuplicateWindow *time.Duration // 2 minutes; at least 100 ms
}

// Processor applies the log to Redis. See the package doc.
type Processor struct{}

// New validates the options. It talks to neither server.
func New(nc *nats.Conn, client redis.UniversalClient, opts Options) (*Processor, error) {
	return nil, errors.New("skeleton")
}

// Run provisions the streams, checks Redis, and processes until ctx is done
// (then it ends the work in flight and returns nil) or something makes going on
// wrong (then it says what). It may be called once.
func (p *Processor) Run(ctx context.Context) error { return errors.New("skeleton") }

// Ready is nil once the log, as it was when Run began, has been applied, and as
// long as nothing is stuck; else it says what is missing.
func (p *Processor) Ready() error { return errors.New("skeleton") }

package serve

import (
	"log/slog"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Options say how a process serves.
type Options struct {
	Version string // in SemVer, for the NATS service
	Logger  *slog.Logger

	// NATS is the URL (or comma-separated URLs) of the servers, or empty: then one
	// is embedded.
	NATS       string
	NATSCreds  string        // a credentials file
	NATSCA     string        // a file of PEM certificates to trust
	NATSListen string        // address of the embedded server
	NATSSync   time.Duration // how often the embedded server syncs to disk; 0: at every write
	Data       string        // directory of the embedded server

	// Redis is the URL of the server, or a cluster's URLs (see parseRedis), or
	// empty: then one is embedded, which forgets everything at the end.
	Redis       string
	RedisListen string // address of the embedded server

	HTTPListen string
	ReadyFile  string // see writeReadyFile; none if empty

	// These are the processor's: see processor.Options.
	Prefix          wire.Prefix
	Partitions      int
	Replicas        int
	LogMaxAge       *time.Duration
	LogMaxBytes     *int64
	EventsMaxAge    *time.Duration
	DuplicateWindow *time.Duration
}

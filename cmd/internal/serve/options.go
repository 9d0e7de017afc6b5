package serve

import (
	"log/slog"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/credentials"
)

// Options say how a process serves.
type Options struct {
	Version string // in SemVer, for the NATS service
	Logger  *slog.Logger

	// NATS is the URL of the server, or comma-separated URLs. If it is empty, the process
	// embeds a server.
	NATS       string
	NATSLogin  credentials.NATS
	NATSListen string        // address of the embedded server
	NATSToken  string        // that clients of the embedded server must give; none if empty
	NATSSync   time.Duration // how often the embedded server syncs to disk; 0: at every write
	Data       string        // directory of the embedded server

	// Follow is the region to follow: its JetStream domain, or the URL of a NATS server there; none if empty.
	Follow string
	// MaxStaleness is how far reads may be behind the first region; they answer 503 beyond. 0 is no limit.
	MaxStaleness time.Duration
	// WritesTo is the URL of the API of the first region, to which writes over HTTP are sent (421); if it is empty,
	// they are passed on.
	WritesTo string

	// Redis is the server, the cluster, or the Sentinels. Without a URL, the process embeds a
	// Redis, which forgets everything at the end.
	Redis       redisconn.Options
	RedisListen string // address of the embedded server, which otherwise listens nowhere; needs Data

	HTTP      web.Options
	ReadyFile string // see writeReadyFile; none if empty

	// Processor is the options of the processor. Run sets its Logger, Metrics and Health. It has a
	// prefix: the other parts of the process take it from here.
	Processor processor.Options

	permissions *natsPermissions // what NATS denies; Run sets it
	malformed   *malformed       // Run sets it
	files       int              // that the process may have open; those of the system if 0
}

package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/sink/wire"
)

var vars = kong.Vars{
	"default_server": "nats://127.0.0.1:4222",
	"default_prefix": string(wire.DefaultPrefix),
}

type serveCommand struct {
	NATS      string `name:"nats" env:"LAPSE_NATS" group:"servers" placeholder:"URL" help:"NATS server to use (several, separated by commas, of a cluster)."`
	NATSCreds string `name:"nats-creds" env:"LAPSE_NATS_CREDS" group:"servers" type:"existingfile" placeholder:"FILE" help:"Credentials for it."`
	NATSCA    string `name:"nats-ca" env:"LAPSE_NATS_CA" group:"servers" type:"existingfile" placeholder:"FILE" help:"Certificates to trust, for a tls:// URL (instead of the system's)."`
	Redis     string `env:"LAPSE_REDIS" group:"servers" placeholder:"URL" help:"Redis to use: redis:// or, with TLS, rediss://. Several separated by commas, or one with ?cluster=true, for a cluster."`

	NATSListen  string       `name:"nats-listen" env:"LAPSE_NATS_LISTEN" group:"embedded" default:"127.0.0.1:4222" placeholder:"HOST:PORT" help:"Where NATS clients connect (${default})."`
	RedisListen string       `env:"LAPSE_REDIS_LISTEN" group:"embedded" default:"127.0.0.1:6379" placeholder:"HOST:PORT" help:"Where Redis clients connect (${default})."`
	Data        string       `env:"LAPSE_DATA" group:"embedded" default:"./lapse-data" placeholder:"DIR" help:"Directory of the log (${default})."`
	NATSSync    syncInterval `name:"nats-sync" env:"LAPSE_NATS_SYNC" group:"embedded" default:"1s" placeholder:"TIME" help:"How often the log is synced to disk, or always, which is slow (${default}). A crash of lapse loses nothing either way; a crash of the machine may lose this much."`

	Prefix          string  `env:"LAPSE_PREFIX" group:"log" default:"${default_prefix}" placeholder:"NAME" help:"Prefix of subjects, streams and keys (${default})."`
	Partitions      int     `env:"LAPSE_PARTITIONS" group:"log" default:"16" placeholder:"N" help:"Partitions of the log, fixed when it is created (${default})."`
	Replicas        int     `env:"LAPSE_REPLICAS" group:"log" placeholder:"N" help:"Replicas of the streams (1)."`
	LogMaxAge       *period `env:"LAPSE_LOG_MAX_AGE" group:"log" placeholder:"TIME" help:"How long the log is kept; 0 for ever (for ever, which the embedded Redis needs)."`
	LogMaxBytes     *size   `env:"LAPSE_LOG_MAX_BYTES" group:"log" placeholder:"SIZE" help:"How large the log may grow, such as 10GiB (no limit)."`
	EventsMaxAge    *period `env:"LAPSE_EVENTS_MAX_AGE" group:"log" placeholder:"TIME" help:"How long events are kept; 0 for ever (7d)."`
	DuplicateWindow *period `env:"LAPSE_DUPLICATE_WINDOW" group:"log" placeholder:"TIME" help:"How long the log remembers the ids of messages (2m)."`

	HTTPListen string `name:"http-listen" env:"LAPSE_HTTP_LISTEN" group:"process" default:"127.0.0.1:7070" placeholder:"HOST:PORT" help:"Where /healthz, /readyz and /metrics are (${default})."`
	ReadyFile  string `env:"LAPSE_READY_FILE" group:"process" placeholder:"FILE" help:"Once ready, write the addresses (JSON) to this file; remove it at the end."`
	LogLevel   string `env:"LAPSE_LOG_LEVEL" group:"process" enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Least of ${enum} (${default})."`
	LogFormat  string `env:"LAPSE_LOG_FORMAT" group:"process" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Log as ${enum} (${default}) on standard error."`
}

// Help implements kong.HelpProvider.
func (serveCommand) Help() string {
	return `Without --nats it embeds a NATS server, without --redis a Redis: no installation, and
nothing is lost at a restart, as all is kept in --data. A port of 0 takes a free one.
SIGTERM or an interrupt ends it cleanly; a second one, at once.`
}

func (c *serveCommand) Run(ctx context.Context, streams Streams) error {
	prefix, err := wire.ParsePrefix(c.Prefix)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	version, _ := version()
	return serve.Run(ctx, serve.Options{
		Version: version,
		Logger:  c.logger(streams),

		NATS: c.NATS, NATSCreds: c.NATSCreds, NATSCA: c.NATSCA,
		NATSListen: c.NATSListen, NATSSync: time.Duration(c.NATSSync), Data: c.Data,
		Redis: c.Redis, RedisListen: c.RedisListen,
		HTTPListen: c.HTTPListen, ReadyFile: c.ReadyFile,

		Prefix: prefix, Partitions: c.Partitions, Replicas: c.Replicas,
		LogMaxAge: (*time.Duration)(c.LogMaxAge), LogMaxBytes: (*int64)(c.LogMaxBytes),
		EventsMaxAge: (*time.Duration)(c.EventsMaxAge), DuplicateWindow: (*time.Duration)(c.DuplicateWindow),
	})
}

// check finds what would otherwise be found only with servers running.
func (c *serveCommand) check() error {
	switch {
	case c.Partitions < 1 || c.Partitions > 1024:
		return fmt.Errorf("--partitions %d: allowed is a number from 1 to 1024", c.Partitions)
	case c.Replicas != 0 && (c.Replicas < 1 || c.Replicas > 5):
		return fmt.Errorf("--replicas %d: allowed is a number from 1 to 5", c.Replicas)
	case c.DuplicateWindow != nil && time.Duration(*c.DuplicateWindow) < 100*time.Millisecond:
		return fmt.Errorf("--duplicate-window %s: allowed is a duration of at least 100ms", time.Duration(*c.DuplicateWindow))
	}
	return nil
}

func (c *serveCommand) logger(streams Streams) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cmp.Or(c.LogLevel, "info"))) // one of the enum
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(streams.Err, opts))
	}
	return slog.New(slog.NewTextHandler(streams.Err, opts))
}

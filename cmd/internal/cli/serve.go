package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/wire"
)

type serveCommand struct {
	PlaceFlags
	ServerFlags
	EmbeddedFlags
	LogFlags
	RegionFlags
	HTTPFlags
	ProcessFlags
}

// PlaceFlags say where lapse keeps everything: they are those of begin-anew too.
type PlaceFlags struct {
	NATS       string     `name:"nats" env:"LAPSE_NATS" group:"servers" placeholder:"URL" help:"NATS server to use, or several servers of a cluster, separated by commas."`
	NATSLogin  NATSLogin  `embed:"" group:"servers"`
	Redis      string     `env:"LAPSE_REDIS" group:"servers" placeholder:"URL" help:"Redis to use: redis:// or, with TLS, rediss://. For a cluster give several URLs, separated by commas, or one with ?cluster=true. For Sentinel: redis+sentinel://HOST:PORT,HOST:PORT/NAME with the name of the master."`
	RedisLogin RedisLogin `embed:"" group:"servers"`
	Data       string     `env:"LAPSE_DATA" group:"embedded" default:"./lapse-data" placeholder:"DIR" help:"Directory of the log (${default})."`
	Prefix     string     `env:"LAPSE_PREFIX" group:"log" default:"${default_prefix}" placeholder:"NAME" help:"Prefix of subjects, streams and keys (${default})."`
	Shards     int        `env:"LAPSE_SHARDS" group:"log" default:"1" placeholder:"N" help:"Number of logs among which the documents are divided, 1 to 64, fixed when the logs are created (${default}). The processes share them out."`
}

// ServerFlags are about servers that lapse does not embed.
type ServerFlags struct {
	Readers    []string     `env:"LAPSE_READERS" group:"servers" placeholder:"ACCOUNT" help:"Account of NATS for readers, in which lapse keeps a mirror of the stream of events (deploy/nats/accounts.conf). For several, repeat the flag or separate them by commas."`
	NATSSynced SyncInterval `name:"nats-sync-interval" env:"LAPSE_NATS_SYNC_INTERVAL" group:"servers" default:"2m" placeholder:"TIME" help:"The sync_interval of the NATS servers, or always (${default}). lapse truncates the log only behind snapshots that they have synced to disk. Set it to theirs; never to less."`
}

// EmbeddedFlags are about the servers that lapse embeds.
type EmbeddedFlags struct {
	NATSListen  string       `name:"nats-listen" env:"LAPSE_NATS_LISTEN" group:"embedded" default:"127.0.0.1:4222" placeholder:"HOST:PORT" help:"Address for NATS clients (${default})."`
	NATSToken   string       `name:"nats-token-file" env:"LAPSE_NATS_TOKEN_FILE" group:"embedded" type:"existingfile" placeholder:"FILE" help:"File whose first line is the token that NATS clients must give. Without it, only a loopback address is allowed."`
	RedisListen string       `env:"LAPSE_REDIS_LISTEN" group:"embedded" placeholder:"HOST:PORT" help:"Loopback address at which redis-cli can look into the embedded Redis, such as 127.0.0.1:6379. The password is in the file redis-password in --data (it listens nowhere)."`
	NATSSync    SyncInterval `name:"nats-sync" env:"LAPSE_NATS_SYNC" group:"embedded" default:"1s" placeholder:"TIME" help:"How often the NATS server syncs the log to disk (${default}), or always, which is slow. A crash of lapse loses nothing either way. A crash of the machine may lose this much."`
}

// LogFlags are about the streams.
type LogFlags struct {
	Replicas        int      `env:"LAPSE_REPLICAS" group:"log" placeholder:"N" help:"Replicas of the streams, 1 to 5 (1)."`
	LogMaxAge       *Period  `env:"LAPSE_LOG_MAX_AGE" group:"log" placeholder:"TIME" help:"How long to keep the log at most; 0 is no limit. Snapshots truncate the log anyway; set no limit that they need longer for (no limit)."`
	LogMaxBytes     *Size    `env:"LAPSE_LOG_MAX_BYTES" group:"log" placeholder:"SIZE" help:"How large the log may grow at most, such as 10GiB. Snapshots truncate the log anyway (no limit)."`
	ForgetWithin    Period   `env:"LAPSE_FORGET_WITHIN" group:"log" default:"8d" placeholder:"TIME" help:"Within which time the bytes of a document are gone from Redis, log, snapshots and events, after it has expired or was deleted or overwritten (${default})."`
	EventsMaxAge    *Period  `env:"LAPSE_EVENTS_MAX_AGE" group:"log" placeholder:"TIME" help:"How long to keep events, at most 7/8 of --forget-within (7d)."`
	EventsMaxBytes  *Size    `env:"LAPSE_EVENTS_MAX_BYTES" group:"log" placeholder:"SIZE" help:"How large the stream of events may grow, such as 10GiB; the oldest events go first (4GiB when lapse creates the stream; less, or no limit, where NATS has no room for that)."`
	DuplicateWindow *Period  `env:"LAPSE_DUPLICATE_WINDOW" group:"log" placeholder:"TIME" help:"How long the log remembers the ids of messages, to drop duplicates (2m)."`
	ReplyPrefix     []string `env:"LAPSE_REPLY_PREFIX" group:"log" placeholder:"SUBJECT" help:"Inbox prefix, such as _INBOX_acme, to which lapse may send outcomes besides _INBOX. For several, repeat the flag or separate them by commas."`
	OpenCollections bool     `env:"LAPSE_OPEN_COLLECTIONS" group:"log" help:"Let a write make a collection that was never configured, with TTL off: a misspelt name then keeps documents for ever. Without it such a write is refused with 404."`
}

// RegionFlags are about other regions.
type RegionFlags struct {
	Follow       string `env:"LAPSE_FOLLOW" group:"region" placeholder:"REGION" help:"Follow another region, which is the first: its JetStream domain, to which a leaf node joins the NATS servers here, or the URL of one of its NATS servers. The streams here become mirrors. Needs --nats."`
	MaxStaleness Period `env:"LAPSE_MAX_STALENESS" group:"region" placeholder:"TIME" help:"Answer reads with 503 while they may be more than this behind the first region (no limit)."`
	WritesTo     string `env:"LAPSE_WRITES_TO" group:"region" placeholder:"URL" help:"API of the first region, such as https://lapse-a.example.com. While this region follows that one, answer writes over HTTP with 421 and this address, in place of passing them on over NATS."`
}

// ProcessFlags are about this process.
type ProcessFlags struct {
	MaxClockLead Period `env:"LAPSE_MAX_CLOCK_LEAD" group:"process" default:"10s" placeholder:"TIME" help:"Stop at a message that NATS has stamped more than this ahead of the clocks of this machine and of Redis (${default})."`
	ReadyFile    string `env:"LAPSE_READY_FILE" group:"process" placeholder:"FILE" help:"Write the addresses (JSON) to this file once lapse is ready, and remove it at the end."`
	LogLevel     string `env:"LAPSE_LOG_LEVEL" group:"process" enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL" help:"Lowest level to log: debug, info, warn or error (${default})."`
	LogFormat    string `env:"LAPSE_LOG_FORMAT" group:"process" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Log on standard error as text or json (${default})."`
}

// HTTPFlags are about the HTTP server.
type HTTPFlags struct {
	Listen    string   `name:"http-listen" env:"LAPSE_HTTP_LISTEN" group:"http" default:"127.0.0.1:7070" placeholder:"HOST:PORT" help:"Address of the API, /healthz, /readyz and /metrics (${default})."`
	TokenFile string   `name:"http-token-file" env:"LAPSE_HTTP_TOKEN_FILE" group:"http" type:"existingfile" placeholder:"FILE" help:"File of the tokens that clients of the API must give: on each line a token, read-only or read-write, and perhaps collections. Read again on SIGHUP. A loopback address needs none. At another one an embedded lapse makes a token at its first start, in http-tokens in --data, and prints it."`
	Cert      string   `name:"http-tls-cert" env:"LAPSE_HTTP_TLS_CERT" group:"http" type:"existingfile" placeholder:"FILE" help:"File with the certificate, for https. Read again on SIGHUP."`
	Key       string   `name:"http-tls-key" env:"LAPSE_HTTP_TLS_KEY" group:"http" type:"existingfile" placeholder:"FILE" help:"File with the private key of that certificate."`
	Proxies   []string `name:"http-trusted-proxy" env:"LAPSE_HTTP_TRUSTED_PROXY" group:"http" placeholder:"ADDRESS" help:"Address of a proxy that ends TLS, or a range such as 10.1.0.0/16: its X-Forwarded-Proto counts. For several, repeat the flag or separate them by commas."`
	Origins   []string `name:"http-allow-origin" env:"LAPSE_HTTP_ALLOW_ORIGIN" group:"http" placeholder:"ORIGIN" help:"Origin of another site, such as https://app.example.com, whose pages may use the API from a browser (CORS). For several, repeat the flag or separate them by commas. * is every origin, and needs --http-token-file."`
}

// Help implements [kong.HelpProvider].
func (serveCommand) Help() string {
	return `Without --nats it embeds a NATS server, and without --redis a Redis. There is nothing to
install, and a restart loses nothing, because the log is in --data. Port 0 takes a free
port. An interrupt (ctrl-C) or SIGTERM ends the process cleanly, a second one at once.`
}

func (c *serveCommand) Run(ctx context.Context, parsed *kong.Context, streams output.Streams) error {
	if err := contradict(parsed.Selected().Flags, parsed.Path); err != nil {
		return err
	}
	prefix, err := c.checkPlace()
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	for _, reply := range c.ReplyPrefix {
		if err := prefix.CheckReplyPrefix(reply); err != nil {
			return fmt.Errorf("--reply-prefix: %w", err)
		}
	}
	version, _, _ := version()
	logger := c.logger(streams)
	c.warnOfOpenFiles(logger)
	err = serve.Run(ctx, serve.Options{
		Version: version,
		Logger:  logger,

		NATS: c.NATS, NATSLogin: c.NATSLogin.Credentials(),
		Redis:      redisconn.Options{URL: c.Redis, Login: c.RedisLogin.Credentials()},
		NATSListen: c.NATSListen, NATSToken: token, NATSSync: time.Duration(c.NATSSync),
		RedisListen: c.RedisListen, Data: c.Data,
		Follow: c.Follow, MaxStaleness: time.Duration(c.MaxStaleness), WritesTo: c.WritesTo,
		HTTP:      web.Options{Listen: c.Listen, TokenFile: c.TokenFile, Cert: c.Cert, Key: c.Key, Proxies: c.Proxies, Origins: c.Origins},
		ReadyFile: c.ReadyFile,

		Processor: processor.Options{
			Prefix: prefix, Shards: c.Shards, Replicas: c.Replicas,
			LogMaxAge: (*time.Duration)(c.LogMaxAge), LogMaxBytes: (*int64)(c.LogMaxBytes),
			EventsMaxAge: (*time.Duration)(c.EventsMaxAge), EventsMaxBytes: (*int64)(c.EventsMaxBytes), DuplicateWindow: (*time.Duration)(c.DuplicateWindow),
			ForgetWithin: time.Duration(c.ForgetWithin), SyncInterval: c.syncInterval(),
			ReplyPrefixes: c.ReplyPrefix, OpenCollections: c.OpenCollections, Readers: c.Readers,
			MaxClockLead: time.Duration(c.MaxClockLead),
		},
	})
	if errors.As(err, new(*processor.Refusal)) {
		return fmt.Errorf("%w (%s)", err, health.Runbook("when-lapse-ends-by-itself"))
	}
	return err
}

// checkPlace finds errors in the flags, and returns the prefix.
func (c *PlaceFlags) checkPlace() (wire.Prefix, error) {
	if c.Shards < 1 || c.Shards > wire.MaxShards {
		return "", fmt.Errorf("--shards %d is not valid: use a number from 1 to %d", c.Shards, wire.MaxShards)
	}
	return wire.ParsePrefix(c.Prefix)
}

// check finds errors in the flags before any server runs.
func (c *serveCommand) check() error {
	for one := range strings.SplitSeq(c.NATS, ",") {
		scheme, _, ok := strings.Cut(strings.TrimSpace(one), "://")
		if ok && !slices.Contains([]string{"nats", "tls", "ws", "wss"}, scheme) {
			return fmt.Errorf("--nats %s is not valid: use nats://HOST:PORT, or with TLS tls://HOST:PORT; several with commas between them", wire.Quote(scheme+"://…"))
		}
	}
	switch {
	case c.Follow != "" && c.NATS == "":
		return errors.New("--follow needs --nats: the NATS servers of a region that follows another one are joined to it by a leaf node")
	case c.MaxStaleness < 0:
		return fmt.Errorf("--max-staleness %s is not valid: use a duration over 0 such as 10s", time.Duration(c.MaxStaleness))
	case !isAPI(c.WritesTo):
		return fmt.Errorf("--writes-to %s is not valid: use the http or https URL of the API of the first region without /v1, such as https://lapse-a.example.com", wire.Quote(c.WritesTo))
	case c.Replicas != 0 && (c.Replicas < 1 || c.Replicas > 5):
		return fmt.Errorf("--replicas %d is not valid: use a number from 1 to 5", c.Replicas)
	case c.MaxClockLead <= 0:
		return fmt.Errorf("--max-clock-lead %s is not valid: use a duration over 0 such as 10s", time.Duration(c.MaxClockLead))
	case c.DuplicateWindow != nil && time.Duration(*c.DuplicateWindow) < 100*time.Millisecond:
		return fmt.Errorf("--duplicate-window %s is not valid: use a duration of at least 100ms", time.Duration(*c.DuplicateWindow))
	case time.Duration(c.ForgetWithin) < time.Second:
		return fmt.Errorf("--forget-within %s is not valid: use a duration of at least 1s, such as 8d", time.Duration(c.ForgetWithin))
	}
	for _, account := range c.Readers {
		if err := processor.CheckReaders(account); err != nil {
			return fmt.Errorf("--readers: %w", err)
		}
	}
	if err := processor.CheckSync(*c.syncInterval(), time.Duration(c.ForgetWithin)); err != nil {
		return err
	}
	return processor.CheckEvents((*time.Duration)(c.EventsMaxAge), time.Duration(c.ForgetWithin))
}

// isAPI reports whether a text is the URL of an API, or empty.
func isAPI(text string) bool {
	u, err := url.Parse(text)
	return text == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" &&
		text == u.Scheme+"://"+u.Host+u.EscapedPath() && !strings.HasSuffix(text, "/") && !strings.HasSuffix(text, "/v1")
}

// syncInterval is how long the NATS server may take to have on disk what it has acknowledged.
func (c *serveCommand) syncInterval() *time.Duration {
	interval := c.NATSSync
	if c.NATS != "" {
		interval = c.NATSSynced
	}
	return (*time.Duration)(&interval)
}

// token reads the token of the embedded NATS server.
func (c *serveCommand) token() (string, error) {
	if c.NATSToken == "" {
		return "", nil
	}
	content, err := os.ReadFile(c.NATSToken)
	if err != nil {
		return "", fmt.Errorf("--nats-token-file: %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	token := strings.TrimSpace(line)
	if len(token) < 8 {
		return "", fmt.Errorf("--nats-token-file %s: its first line has %d characters: use a token of at least 8", c.NATSToken, len(token))
	}
	return token, nil
}

func (c *serveCommand) logger(streams output.Streams) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cmp.Or(c.LogLevel, "info"))) // kong allows the four levels alone
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(streams.Err, opts))
	}
	return slog.New(slog.NewTextHandler(streams.Err, opts))
}

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"reflect"
	"runtime"
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
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

type serveCommand struct {
	PlaceFlags
	ServerFlags   `embed:"" group:"servers"`
	EmbeddedFlags `embed:"" group:"embedded"`
	LogFlags      `embed:"" group:"log"`
	RegionFlags   `embed:"" group:"region"`
	HTTPFlags     `embed:"" group:"http"`
	ProcessFlags  `embed:"" group:"process"`
}

// PlaceFlags say where lapse keeps everything: they are those of begin-anew too.
type PlaceFlags struct {
	NATS       string     `name:"nats" env:"LAPSE_NATS" group:"servers" placeholder:"URL"`
	NATSLogin  NATSLogin  `embed:"" prefix:"nats-" envprefix:"LAPSE_NATS_" group:"servers"`
	Redis      string     `env:"LAPSE_REDIS" group:"servers" placeholder:"URL"`
	RedisLogin RedisLogin `embed:"" prefix:"redis-" envprefix:"LAPSE_REDIS_" group:"servers"`
	Data       string     `env:"LAPSE_DATA" group:"embedded" default:"./lapse-data" placeholder:"DIR"`
	Prefix     string     `env:"LAPSE_PREFIX" group:"log" default:"${default_prefix}" placeholder:"NAME"`
	Shards     int        `env:"LAPSE_SHARDS" group:"log" default:"1" placeholder:"N"`
}

// ServerFlags are about servers that lapse does not embed.
type ServerFlags struct {
	Readers    []string     `env:"LAPSE_READERS" placeholder:"ACCOUNT"`
	NATSSynced SyncInterval `name:"nats-sync-interval" env:"LAPSE_NATS_SYNC_INTERVAL" default:"2m" placeholder:"TIME"`
}

// EmbeddedFlags are about the servers that lapse embeds.
type EmbeddedFlags struct {
	NATSListen string `name:"nats-listen" env:"LAPSE_NATS_LISTEN" default:"127.0.0.1:4222" placeholder:"HOST:PORT"`
	NATSToken
	RedisListen string       `env:"LAPSE_REDIS_LISTEN" placeholder:"HOST:PORT"`
	NATSSync    SyncInterval `name:"nats-sync" env:"LAPSE_NATS_SYNC" default:"1s" placeholder:"TIME"`
}

// LogFlags are about the streams.
type LogFlags struct {
	Replicas        int      `env:"LAPSE_REPLICAS" placeholder:"N"`
	LogMaxAge       *Period  `env:"LAPSE_LOG_MAX_AGE" placeholder:"TIME"`
	LogMaxBytes     *Size    `env:"LAPSE_LOG_MAX_BYTES" placeholder:"SIZE"`
	ForgetWithin    Period   `env:"LAPSE_FORGET_WITHIN" default:"8d" placeholder:"TIME"`
	EventsMaxAge    *Period  `env:"LAPSE_EVENTS_MAX_AGE" placeholder:"TIME"`
	EventsMaxBytes  *Size    `env:"LAPSE_EVENTS_MAX_BYTES" placeholder:"SIZE"`
	DuplicateWindow *Period  `env:"LAPSE_DUPLICATE_WINDOW" placeholder:"TIME"`
	ReplyPrefix     []string `env:"LAPSE_REPLY_PREFIX" placeholder:"SUBJECT"`
	OpenCollections bool     `env:"LAPSE_OPEN_COLLECTIONS"`
}

// RegionFlags are about other regions.
type RegionFlags struct {
	Follow       string `env:"LAPSE_FOLLOW" placeholder:"REGION"`
	MaxStaleness Period `env:"LAPSE_MAX_STALENESS" placeholder:"TIME"`
	WritesTo     string `env:"LAPSE_WRITES_TO" placeholder:"URL"`
}

// ProcessFlags are about this process.
type ProcessFlags struct {
	MaxClockLead Period `env:"LAPSE_MAX_CLOCK_LEAD" default:"10s" placeholder:"TIME"`
	ReadyFile    string `env:"LAPSE_READY_FILE" placeholder:"FILE"`
	LogLevel     string `env:"LAPSE_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" placeholder:"LEVEL"`
	LogFormat    string `env:"LAPSE_LOG_FORMAT" enum:"text,json" default:"text" placeholder:"FORMAT"`
}

// HTTPFlags are about the HTTP server: [web.Options], with tags.
type HTTPFlags struct {
	Listen    string   `name:"http-listen" env:"LAPSE_HTTP_LISTEN" default:"127.0.0.1:7070" placeholder:"HOST:PORT"`
	TokenFile string   `name:"http-token-file" env:"LAPSE_HTTP_TOKEN_FILE" type:"existingfile" placeholder:"FILE"`
	Cert      string   `name:"http-tls-cert" env:"LAPSE_HTTP_TLS_CERT" type:"existingfile" placeholder:"FILE"`
	Key       string   `name:"http-tls-key" env:"LAPSE_HTTP_TLS_KEY" type:"existingfile" placeholder:"FILE"`
	Proxies   []string `name:"http-trusted-proxy" env:"LAPSE_HTTP_TRUSTED_PROXY" placeholder:"ADDRESS"`
	Origins   []string `name:"http-allow-origin" env:"LAPSE_HTTP_ALLOW_ORIGIN" placeholder:"ORIGIN"`
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

		NATS: c.NATS, NATSLogin: credentials.NATS(c.NATSLogin),
		Redis:      redisconn.Options{URL: c.Redis, Login: credentials.Redis(c.RedisLogin)},
		NATSListen: c.NATSListen, NATSToken: token, NATSSync: time.Duration(c.NATSSync),
		RedisListen: c.RedisListen, Data: c.Data,
		Follow: c.Follow, MaxStaleness: time.Duration(c.MaxStaleness), WritesTo: c.WritesTo,
		HTTP:      web.Options(c.HTTPFlags),
		ReadyFile: c.ReadyFile,

		Processor: processor.Options{
			Prefix: prefix, Shards: c.Shards, Replicas: c.Replicas,
			LogMaxAge: (*time.Duration)(c.LogMaxAge), LogMaxBytes: (*int64)(c.LogMaxBytes),
			EventsMaxAge: (*time.Duration)(c.EventsMaxAge), EventsMaxBytes: (*int64)(c.EventsMaxBytes),
			DuplicateWindow: (*time.Duration)(c.DuplicateWindow),
			ForgetWithin:    time.Duration(c.ForgetWithin), SyncInterval: c.syncInterval(),
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
			return fmt.Errorf("--nats %s is not valid: use nats://HOST:PORT, or with TLS tls://HOST:PORT; several with commas "+
				"between them", wire.Quote(scheme+"://…"))
		}
	}
	switch {
	case c.Follow != "" && c.NATS == "":
		return errors.New("--follow needs --nats: the NATS servers of a region that follows another one are joined to it " +
			"by a leaf node")
	case c.MaxStaleness < 0:
		return fmt.Errorf("--max-staleness %s is not valid: use a duration over 0 such as 10s", time.Duration(c.MaxStaleness))
	case !isAPI(c.WritesTo):
		return fmt.Errorf("--writes-to %s is not valid: use the http or https URL of the API of the first region without "+
			"/v1, such as https://lapse-a.example.com", wire.Quote(c.WritesTo))
	case c.Replicas != 0 && (c.Replicas < 1 || c.Replicas > 5):
		return fmt.Errorf("--replicas %d is not valid: use a number from 1 to 5", c.Replicas)
	case c.MaxClockLead <= 0:
		return fmt.Errorf("--max-clock-lead %s is not valid: use a duration over 0 such as 10s",
			time.Duration(c.MaxClockLead))
	case c.DuplicateWindow != nil && time.Duration(*c.DuplicateWindow) < 100*time.Millisecond:
		return fmt.Errorf("--duplicate-window %s is not valid: use a duration of at least 100ms",
			time.Duration(*c.DuplicateWindow))
	case time.Duration(c.ForgetWithin) < time.Second:
		return fmt.Errorf("--forget-within %s is not valid: use a duration of at least 1s, such as 8d",
			time.Duration(c.ForgetWithin))
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
	if c.Token == "" {
		return "", nil
	}
	content, err := os.ReadFile(c.Token)
	if err != nil {
		return "", fmt.Errorf("--nats-token-file: %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	token := strings.TrimSpace(line)
	if len(token) < 8 {
		return "", fmt.Errorf("--nats-token-file %s: its first line has %d characters: use a token of at least 8",
			c.Token, len(token))
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

// contradiction is an error about flags of serve that do not go together.
type contradiction struct{ error }

func (e contradiction) Unwrap() error { return e.error }

// server is a server that lapse either embeds or is given, and the flags that only one of the two
// has a use for.
type server struct {
	flag, name string
	embedded   []string // flags that are about the embedded server
	given      []string // flags that are about a server that is given
}

var servers = []server{
	{
		flag: "nats", name: "NATS server", embedded: []string{"data", "nats-listen", "nats-sync", "nats-token-file"},
		given: []string{"nats-user", "nats-password-file", "nats-nkey-file", "nats-creds", "nats-ca", "nats-cert", "nats-key",
			"nats-inbox-prefix", "nats-sync-interval", "replicas"},
	},
	{
		flag: "redis", name: "Redis", embedded: []string{"redis-listen"},
		given: []string{"redis-user", "redis-password-file", "redis-ca", "redis-cert", "redis-key", "redis-sentinel-user",
			"redis-sentinel-password-file"},
	},
}

// contradict returns an error if flags are about an embedded server and about one that is given.
// A flag may also come from the environment, where it may have been set for something else: to
// pass over it could change the data of the wrong server.
func contradict(flags []*kong.Flag, path []*kong.Path) error {
	from := origins(flags, path)
	nats, listen := from["nats"], from["redis-listen"]
	if _, isGiven := from["redis"]; nats != "" && listen != "" && !isGiven {
		return contradiction{output.Usagef("%s names a NATS server, so there is no data directory for the password that %s "+
			"needs. Leave out one of them, or run a redis-server and name it with --redis", nats, listen)}
	}
	for _, s := range servers {
		where, isGiven := from[s.flag]
		contrary := s.given
		if isGiven {
			contrary = s.embedded
		}
		var these []string
		for _, name := range contrary {
			if origin, ok := from[name]; ok {
				these = append(these, origin)
			}
		}
		if len(these) == 0 {
			continue
		}
		list := strings.Join(these, ", ")
		if isGiven {
			return contradiction{output.Usagef("%s names a %s, but these are for the embedded one: %s. Leave out the one or "+
				"the others (--%s '' embeds one, whatever the environment says)",
				where, s.name, list, s.flag)}
		}
		return contradiction{output.Usagef("these are for a %s that is not embedded: %s. Name one (--%s or LAPSE_%s), or "+
			"leave these out",
			s.name, list, s.flag, strings.ToUpper(s.flag))}
	}
	return nil
}

// origins says where each flag that has a value gets it from. A default is no value, and neither
// are "" and false.
func origins(flags []*kong.Flag, path []*kong.Path) map[string]string {
	from := make(map[string]string)
	for _, flag := range flags {
		empty := flag.Target.IsZero() && !strings.HasPrefix(flag.Name, "nats-sync") // there, "always" is 0
		if empty || flag.Name == "replicas" && flag.Target.Equal(reflect.ValueOf(1)) {
			continue // one replica is what an embedded server has too
		}
		if slices.ContainsFunc(path, func(p *kong.Path) bool { return p.Flag == flag }) {
			from[flag.Name] = "the flag --" + flag.Name
			continue
		}
		for _, variable := range flag.Envs {
			if os.Getenv(variable) != "" {
				from[flag.Name] = "the environment variable " + variable
			}
		}
	}
	return from
}

// readableFile is the warning of a file that eachReadable finds.
const readableFile = "every user of this machine can read a file with a secret: take the permission away with chmod o-r"

// eachReadable calls f with each file with a secret, named by its flag, that every user of the machine can
// read. Members of the file's group are meant to: Kubernetes gives a secret to a process by its group.
func eachReadable(files [][2]string, f func(flag, file string, mode os.FileMode)) {
	if runtime.GOOS == "windows" {
		return // its permissions are others
	}
	for _, one := range files {
		if one[1] == "" {
			continue
		}
		info, err := os.Stat(one[1])
		if err == nil && info.Size() > 0 && info.Mode()&0o004 != 0 {
			f(one[0], one[1], info.Mode().Perm())
		}
	}
}

// warnOfOpenFiles logs a warning for each file with a secret that every user of the machine can read.
func (c *serveCommand) warnOfOpenFiles(log *slog.Logger) {
	eachReadable([][2]string{
		{"--http-token-file", c.TokenFile}, {"--http-tls-key", c.Key}, {"--nats-token-file", c.Token},
		{"--nats-password-file", c.NATSLogin.PasswordFile}, {"--nats-nkey-file", c.NATSLogin.NKeyFile},
		{"--nats-creds", c.NATSLogin.Creds}, {"--nats-key", c.NATSLogin.Key},
		{"--redis-password-file", c.RedisLogin.PasswordFile}, {"--redis-key", c.RedisLogin.Key},
		{"--redis-sentinel-password-file", c.RedisLogin.SentinelPasswordFile},
	}, func(flag, file string, mode os.FileMode) {
		log.Warn(readableFile, slog.String("flag", flag), slog.String("file", file), slog.String("mode", mode.String()))
	})
}

type beginAnewCommand struct {
	LogEnd       bool `name:"accept-lost-log-end" group:"accept"`
	LogBeginning bool `name:"accept-lost-log-beginning" group:"accept"`
	LogMessages  bool `name:"accept-lost-log-messages" group:"accept"`
	Documents    bool `name:"accept-lost-documents" group:"accept"`
	Events       bool `name:"accept-lost-events" group:"accept"`
	RedisIsSaved bool `name:"redis-is-saved" group:"accept"`
	PlaceFlags
}

func (c *beginAnewCommand) Run(ctx context.Context, parsed *kong.Context, streams output.Streams) error {
	if err := contradict(parsed.Selected().Flags, parsed.Path); err != nil {
		return err
	}
	prefix, err := c.checkPlace()
	if err != nil {
		return output.Usage(err)
	}
	done, left, err := serve.BeginAnew(ctx, serve.Options{
		Logger: slog.New(slog.NewTextHandler(streams.Err, &slog.HandlerOptions{Level: slog.LevelWarn})),
		NATS:   c.NATS, NATSLogin: credentials.NATS(c.NATSLogin), Data: c.Data,
		Redis:     redisconn.Options{URL: c.Redis, Login: credentials.Redis(c.RedisLogin)},
		Processor: processor.Options{Prefix: prefix, Shards: c.Shards},
	}, c.accepted())
	for _, text := range done {
		if _, err := fmt.Fprintln(streams.Out, text); err != nil {
			return err
		}
	}
	for _, why := range left {
		streams.Warn("refused: " + output.OneLine(why))
	}
	restore := "restore what is missing, or give it up with the flags that are named (" +
		health.Runbook("give-up-what-is-missing") + ")"
	switch {
	case err != nil:
		return err
	case len(left) > 0 && len(done) == 0:
		return fmt.Errorf("%d refused, and nothing was changed: %s", len(left), restore)
	case len(left) > 0:
		return fmt.Errorf("%d still refused: %s", len(left), restore)
	case len(done) == 0:
		_, err = fmt.Fprintln(streams.Out, "nothing is refused, and nothing was changed: start lapse")
	}
	return err
}

// accepted is what the flags give up.
func (c *beginAnewCommand) accepted() processor.Accepted {
	a := processor.Accepted{RedisIsSaved: c.RedisIsSaved}
	for i, given := range []bool{c.LogEnd, c.LogBeginning, c.LogMessages, c.Documents, c.Events} {
		if given {
			a.Losses = append(a.Losses, processor.Losses[i])
		}
	}
	return a
}

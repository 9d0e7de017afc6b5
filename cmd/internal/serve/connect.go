package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed18712806/lapse/cmd/internal/redact"
)

const (
	connectTimeout   = 5 * time.Second
	redisDialTimeout = 2 * time.Second
	redisTimeout     = 5 * time.Second // to read a reply, or write a command

	// Connections to Redis, at most. The processor pipelines and needs few;
	// each read has one to itself for a round trip.
	processorPool = 16
	readsPool     = 64
)

// connections are one to each of the two servers.
type connections struct {
	nats  *nats.Conn
	redis redis.UniversalClient
}

// connect connects to both, until p is closed.
func (p *process) connect(ctx context.Context, opts Options, embedded *natsServer, name string, poolSize int) (c connections, err error) {
	if c.nats, err = connectNATS(opts, embedded, name); err != nil {
		return c, err
	}
	p.opened(func() error { c.nats.Close(); return nil })
	if c.redis, err = connectRedis(ctx, opts.Redis, poolSize); err != nil {
		return c, err
	}
	p.opened(c.redis.Close)
	return c, nil
}

// connectNATS connects to the servers, or to the embedded one.
//
// Once connected, it never gives up. While there is no connection a publish
// fails at once: what the library would buffer for later might then be sent
// twice, or too late. A connection that is only half open is noticed after two
// pings of 5 seconds.
func connectNATS(opts Options, embedded *natsServer, name string) (*nats.Conn, error) {
	log := opts.Logger.With(slog.String("connection", name))
	options := []nats.Option{
		nats.Name("lapse " + name),
		nats.Timeout(connectTimeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(false),
		nats.IgnoreAuthErrorAbort(), // credentials may be put right
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // else it was closed
				log.Warn("NATS disconnected", slog.Any("error", err))
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("NATS reconnected", slog.String("server", nc.ConnectedUrlRedacted()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("NATS error", slog.Any("error", err), slog.String("subject", subject))
		}),
	}
	if opts.NATSCreds != "" {
		options = append(options, nats.UserCredentials(opts.NATSCreds))
	}
	if opts.NATSCA != "" {
		options = append(options, nats.RootCAs(opts.NATSCA))
	}
	where := "--nats " + redact.URLs(opts.NATS)
	if embedded != nil {
		where = "embedded NATS server"
		options = append(options, nats.InProcessServer(embedded))
	}
	nc, err := nats.Connect(opts.NATS, options...)
	switch {
	case errors.Is(err, nats.ErrNoServers): // how nats.go says "connection refused"
		return nil, fmt.Errorf("%s: no NATS server answers there", where)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot connect: %w", where, err)
	}
	return nc, nil
}

// connectRedis connects to a server or cluster, and asks it for a sign of life.
func connectRedis(ctx context.Context, redisURL string, poolSize int) (redis.UniversalClient, error) {
	target, err := parseRedis(redisURL)
	if err != nil {
		return nil, err
	}
	client := target.client(poolSize)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("--redis %s: no answer: %w", redact.URLs(redisURL), err), client.Close())
	}
	return client, nil
}

// redisTarget is a server or a cluster: the other is nil.
type redisTarget struct {
	server  *redis.Options
	cluster *redis.ClusterOptions
}

// client makes a client, which connects when it is first used.
//
// go-redis repeats commands after a network error unless told not to, and it
// knows deadlines only if told to: a script must not run twice, and a read must
// not wait for ever. (A client of a cluster repeats them all the same, as it does
// after a redirection; the fence of a commit then refuses the second.)
func (t redisTarget) client(poolSize int) redis.UniversalClient {
	if o := t.cluster; o != nil {
		o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
		o.DialTimeout = cmp.Or(o.DialTimeout, redisDialTimeout)
		o.ReadTimeout = cmp.Or(o.ReadTimeout, redisTimeout)
		o.WriteTimeout = cmp.Or(o.WriteTimeout, redisTimeout)
		o.PoolSize = cmp.Or(o.PoolSize, poolSize)
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		return redis.NewClusterClient(o)
	}
	o := t.server
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
	o.DialTimeout = cmp.Or(o.DialTimeout, redisDialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, redisTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, redisTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o)
}

// parseRedis reads a URL (redis:// or, for TLS, rediss://). Several of them,
// separated by commas, are nodes of a cluster, and so is one with ?cluster=true;
// user, password, TLS and other parameters are those of the first.
func parseRedis(redisURL string) (redisTarget, error) {
	const allowed = "allowed is redis://[[user]:password@]host:port[/db] (rediss:// for TLS); several separated by commas, or one with ?cluster=true, for a cluster"
	fail := func(err error) (redisTarget, error) {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // without the URL, which may hold a password
		}
		return redisTarget{}, fmt.Errorf("--redis %s: %w: %s", redact.URLs(redisURL), err, allowed)
	}
	nodes := strings.Split(redisURL, ",")
	first, err := url.Parse(nodes[0])
	if err != nil {
		return fail(err)
	}
	query := first.Query()
	isCluster := len(nodes) > 1
	if text := query.Get("cluster"); text != "" {
		said, err := strconv.ParseBool(text)
		if err != nil || !said && isCluster {
			return fail(fmt.Errorf("there is cluster=%s", text))
		}
		isCluster = said
	}
	query.Del("cluster")
	first.RawQuery = query.Encode()

	if !isCluster {
		o, err := redis.ParseURL(first.String())
		if err != nil {
			return fail(err)
		}
		return redisTarget{server: o}, nil
	}
	o, err := redis.ParseClusterURL(first.String())
	if err != nil {
		return fail(err)
	}
	for _, node := range nodes[1:] {
		u, err := url.Parse(node)
		if err != nil || u.Scheme != first.Scheme || u.Host == "" {
			return fail(fmt.Errorf("%q is not a %s:// URL", redact.URLs(node), first.Scheme))
		}
		o.Addrs = append(o.Addrs, u.Host)
	}
	return redisTarget{cluster: o}, nil
}

// redisLog takes what go-redis says by itself, about each connection of a pool
// that fails; the commands that fail for it say the same to their callers.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "go-redis", slog.String("message", fmt.Sprintf(format, v...)))
}

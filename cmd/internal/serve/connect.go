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

	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/redact"
)

const (
	connectTimeout   = 5 * time.Second
	redisDialTimeout = 2 * time.Second
	redisTimeout     = 5 * time.Second // to read a reply, or write a command

	// The most connections to Redis. The processor pipelines and needs few. Each read has
	// one to itself for a round trip.
	processorPool = 16
	readsPool     = 64
)

// connections has one connection to each of the two servers.
type connections struct {
	nats  *nats.Conn
	redis redis.UniversalClient
}

// connect connects to both servers, until p is closed.
func (p *process) connect(ctx context.Context, opts Options, embedded *natsServer, name string, poolSize int) (c connections, err error) {
	if c.nats, err = connectNATS(opts, embedded, name); err != nil {
		return c, err
	}
	p.opened(func() error { c.nats.Close(); return nil })
	if c.redis, err = connectRedis(ctx, opts.Redis, opts.RedisLogin, poolSize); err != nil {
		return c, err
	}
	p.opened(c.redis.Close)
	return c, nil
}

// connectNATS connects to the servers, or to the embedded one.
//
// After the first connection it reconnects for ever. While there is no connection a publish
// fails at once: the library could send a buffered message twice, or too late. Two pings
// of 5 seconds find a connection that is only half open.
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
		nats.IgnoreAuthErrorAbort(), // somebody may correct the credentials
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // otherwise this process closed it
				log.Warn("NATS disconnected", slog.Any("error", err))
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("NATS reconnected", slog.String("server", nc.ConnectedUrlRedacted()))
		}),
		nats.ErrorHandler(func(nc *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			if opts.permissions != nil && opts.permissions.Note(nc, err) {
				return
			}
			log.Warn("NATS error", slog.Any("error", err), slog.String("subject", subject))
		}),
	}
	login, err := opts.NATSLogin.Options(opts.NATS)
	if err != nil {
		return nil, err
	}
	options = append(options, login...)
	where := "--nats " + redact.URLs(opts.NATS)
	if embedded != nil {
		where = "embedded NATS server"
		options = append(options, nats.InProcessServer(embedded), nats.Token(opts.NATSToken))
	}
	nc, err := nats.Connect(opts.NATS, options...)
	switch {
	case errors.Is(err, nats.ErrNoServers): // the error of nats.go for "connection refused"
		return nil, fmt.Errorf("%s: no NATS server answers there: start it, or use another URL", where)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return nil, fmt.Errorf("%s: cannot connect: %w: the server refuses these credentials", where, err)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot connect: %w", where, err)
	}
	return nc, nil
}

// connectRedis connects to a server or cluster, and pings it.
func connectRedis(ctx context.Context, redisURL string, login credentials.Redis, poolSize int) (redis.UniversalClient, error) {
	target, err := parseRedis(redisURL)
	if err != nil {
		return nil, err
	}
	if err := target.login(redisURL, login); err != nil {
		return nil, err
	}
	client := target.client(poolSize)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("--redis %s: %w", redact.URLs(redisURL), pingError(err)), client.Close())
	}
	return client, nil
}

// pingError explains why the first command failed.
func pingError(err error) error {
	var answer redis.Error
	switch {
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return fmt.Errorf("the server refuses the user or the password: give others with --redis-user and --redis-password-file: %w", err)
	case redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("the user may not run a command that lapse needs: allow it in the ACL of Redis: %w", err)
	case errors.As(err, &answer):
		return fmt.Errorf("the server answers with an error: %w", err)
	}
	return fmt.Errorf("no Redis answers there: start it, or use another URL: %w", err)
}

// redisTarget is a server or a cluster; one of the two is set.
type redisTarget struct {
	server  *redis.Options
	cluster *redis.ClusterOptions
}

// login adds the user, the password and the certificates. New connections read their files
// anew.
func (t redisTarget) login(redisURL string, login credentials.Redis) error {
	secured := t.cluster != nil && t.cluster.TLSConfig != nil || t.server != nil && t.server.TLSConfig != nil
	if err := login.Check(redisURL, secured); err != nil {
		return err
	}
	if o := t.cluster; o != nil {
		if login.PasswordFile != "" {
			o.CredentialsProviderContext = login.Login
		}
		if secured {
			o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, redisDialTimeout))
		}
		return nil
	}
	o := t.server
	if login.PasswordFile != "" {
		o.CredentialsProviderContext = login.Login
	}
	if secured {
		o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, redisDialTimeout))
	}
	return nil
}

// client makes a client, which connects when it is first used.
//
// By default go-redis repeats a command after a network error and ignores the deadline of
// its context. But a script must not run twice, and a read must not wait for ever. A client
// of a cluster repeats commands anyway; the fence of a commit then refuses the second.
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

// parseRedis reads a URL (redis:// or, for TLS, rediss://). Several URLs, separated by
// commas, are nodes of a cluster, and so is one with ?cluster=true. The first URL has the
// user, the password and all parameters.
func parseRedis(redisURL string) (redisTarget, error) {
	const use = "use redis://[[user]:password@]host:port[/db] (rediss:// for TLS); for a cluster several of them separated by commas, or one with ?cluster=true"
	fail := func(err error) (redisTarget, error) {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // leaves out the URL, which may hold a password
		}
		return redisTarget{}, fmt.Errorf("--redis %s is not valid (%w): %s", redact.URLs(redisURL), err, use)
	}
	nodes := strings.Split(redisURL, ",")
	first, err := url.Parse(nodes[0])
	if err != nil {
		return fail(err)
	}
	query := first.Query()
	isCluster := len(nodes) > 1
	if text := query.Get("cluster"); text != "" {
		asked, err := strconv.ParseBool(text)
		switch {
		case err != nil:
			return fail(fmt.Errorf("cluster=%s is neither true nor false", text))
		case !asked && isCluster:
			return fail(fmt.Errorf("several URLs are a cluster, but the first one has cluster=%s", text))
		}
		isCluster = asked
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

// redisLog logs the messages of go-redis about failed connections of a pool at debug level,
// because the failed commands report the same error to their callers.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, "go-redis", slog.String("message", fmt.Sprintf(format, v...)))
}

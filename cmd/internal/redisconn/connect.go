package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed18712806/lapse/sink/credentials"
)

const (
	connectTimeout  = 5 * time.Second
	dialTimeout     = 2 * time.Second
	answerTimeout   = 5 * time.Second // to read a reply, or write a command
	poolTimeout     = 6 * time.Second // to get a connection of the pool
	slotsTimeout    = time.Second     // to read the slots from one node of a cluster
	slotsEvery      = 2 * time.Second
	sentinelTimeout = 2 * time.Second // to ask one Sentinel
)

// Options say to which Redis a process connects. Errors name the flags of the command line.
type Options struct {
	URL   string // of the server, or URLs of a cluster or of Sentinels; see parseURL
	Login credentials.Redis

	// Dial connects to the Redis in this process, in place of all others. Nil: there is none.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Check finds errors in the options, without a connection.
func (o Options) Check() error {
	_, err := o.parse()
	return err
}

// parse reads the URL and the login.
func (o Options) parse() (target, error) {
	if o.Dial != nil {
		return target{server: &redis.Options{Dialer: o.Dial}}, nil
	}
	t, err := parseURL(o.URL)
	if err == nil {
		err = t.login(o.URL, o.Login)
	}
	return t, err
}

// Connect connects to a server, a cluster, or the master that Sentinels name, and pings it.
func (o Options) Connect(ctx context.Context, poolSize int) (redis.UniversalClient, error) {
	t, err := o.parse()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	fail := func(err error) error { return fmt.Errorf("--redis %s: %w", credentials.RedactURLs(o.URL), err) }
	if err := t.askSentinels(ctx); err != nil {
		return nil, fail(err)
	}
	client := t.client(poolSize)
	if err := pingAny(ctx, client); err != nil {
		return nil, errors.Join(fail(pingError(err)), client.Close())
	}
	return client, nil
}

// pingAny returns an error unless the server answers; of a cluster, any master. One master that
// stands still must not keep a process from starting.
func pingAny(ctx context.Context, client redis.UniversalClient) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return client.Ping(ctx).Err()
	}
	first := make(chan error, 1)
	go func() {
		var answered atomic.Bool
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := node.Ping(ctx).Err()
			if err == nil && !answered.Swap(true) {
				first <- nil
			}
			return err
		})
		if !answered.Load() {
			first <- cmp.Or(err, errors.New("the cluster has no master"))
		}
	}()
	return <-first
}

// PingAll returns an error unless the server answers; of a cluster, every master.
func PingAll(ctx context.Context, client redis.UniversalClient) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return client.Ping(ctx).Err()
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := node.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("master %s: %w", node.Options().Addr, err)
		}
		return nil
	})
}

// pingError explains why the first command failed.
func pingError(err error) error {
	var answer redis.Error
	switch {
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return fmt.Errorf("the server refuses the user or the password: give others with --redis-user and "+
			"--redis-password-file: %w", err)
	case redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("the user may not run a command that lapse needs: allow it in the ACL of Redis: %w", err)
	case errors.As(err, &answer):
		return fmt.Errorf("the server answers with an error: %w", err)
	}
	return fmt.Errorf("no Redis answers there: start it, or use another URL: %w", err)
}

// askSentinels returns an error unless a Sentinel knows the master.
func (t target) askSentinels(ctx context.Context) error {
	if t.sentinel == nil {
		return nil
	}
	err := t.anySentinel(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("the Sentinels do not know a master of the name %s: use the name in their line \"sentinel "+
			"monitor\"", t.sentinel.MasterName)
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("%w: it refuses the user or the password: give others with --redis-sentinel-user and "+
			"--redis-sentinel-password-file", err)
	}
	return fmt.Errorf("no Sentinel answers: start one, or use other addresses: %w", err)
}

// login adds the users, the passwords and the certificates. New connections read their files
// anew, except for the password of the Sentinels.
func (t target) login(redisURL string, login credentials.Redis) error {
	var secured bool
	switch {
	case t.cluster != nil:
		secured = t.cluster.TLSConfig != nil
	case t.sentinel != nil:
		secured = t.sentinel.TLSConfig != nil
	default:
		secured = t.server.TLSConfig != nil
	}
	if err := login.Check(redisURL, secured); err != nil {
		return err
	}
	secret, err := login.Sentinel(t.sentinel != nil)
	if err != nil {
		return err
	}
	var provide func(context.Context) (string, string, error)
	if login.PasswordFile != "" {
		provide = login.Login
	}
	switch {
	case t.cluster != nil:
		o := t.cluster
		o.CredentialsProviderContext = provide
		if secured {
			o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, dialTimeout))
		}
	case t.sentinel != nil:
		o := t.sentinel
		o.CredentialsProviderContext = provide
		if secured {
			o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, dialTimeout))
		}
		if secret != "" && o.SentinelPassword != "" {
			return errors.New("--redis-sentinel-password-file: the URL has sentinel_password: give the password in one of " +
				"the two places")
		}
		if secret != "" {
			o.SentinelUsername, o.SentinelPassword = login.SentinelUser, secret
		}
	default:
		o := t.server
		o.CredentialsProviderContext = provide
		if secured {
			o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, dialTimeout))
		}
	}
	return nil
}

// client makes a client, which connects when it is first used.
//
// By default go-redis repeats a command after a network error and ignores the deadline of
// its context. But a script must not run twice, and a read must not wait for ever. A client
// of a cluster repeats commands anyway; the fence of a commit then refuses the second.
//
// No client says which library it is: the roles in deploy/ permit no CLIENT SETINFO, as Redis
// 7.0 does not know it, and later ones would log each connection as a denied command.
func (t target) client(poolSize int) redis.UniversalClient {
	switch {
	case t.cluster != nil:
		return clusterClient(t.cluster, poolSize)
	case t.sentinel != nil:
		o := t.sentinel
		o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries, o.DisableIdentity = -1, true, 1, true
		o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
		o.ReadTimeout = cmp.Or(o.ReadTimeout, answerTimeout)
		o.WriteTimeout = cmp.Or(o.WriteTimeout, answerTimeout)
		o.PoolTimeout, o.PoolSize = cmp.Or(o.PoolTimeout, poolTimeout), cmp.Or(o.PoolSize, poolSize)
		return redis.NewFailoverClient(o)
	}
	o := t.server
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries, o.DisableIdentity = -1, true, 1, true
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, answerTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, answerTimeout)
	o.PoolTimeout, o.PoolSize = cmp.Or(o.PoolTimeout, poolTimeout), cmp.Or(o.PoolSize, poolSize)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o)
}

// anySentinel asks one Sentinel after the other for the master, until one answers with it. It returns the
// first error that a Sentinel has answered, or else the first.
func (t target) anySentinel(ctx context.Context) (first error) {
	o := t.sentinel
	for _, address := range o.SentinelAddrs {
		one := redis.NewSentinelClient(&redis.Options{Addr: address, Dialer: o.Dialer, TLSConfig: o.TLSConfig,
			Username: o.SentinelUsername, Password: o.SentinelPassword,
			DialTimeout: cmp.Or(o.DialTimeout, dialTimeout), ReadTimeout: sentinelTimeout, WriteTimeout: sentinelTimeout,
			PoolTimeout: sentinelTimeout,
			MaxRetries:  -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true})
		asking, cancel := context.WithTimeout(ctx, sentinelTimeout)
		err := one.GetMasterAddrByName(asking, o.MasterName).Err()
		cancel()
		_ = one.Close()
		if err == nil {
			return nil
		}
		var answer redis.Error
		if first == nil || errors.As(err, &answer) && !errors.As(first, &answer) {
			first = fmt.Errorf("the Sentinel %s: %w", address, err)
		}
	}
	return first
}

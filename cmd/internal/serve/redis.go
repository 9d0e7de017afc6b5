package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/redact"
)

const (
	redisDialTimeout = 2 * time.Second
	redisTimeout     = 5 * time.Second // to read a reply, or write a command
	slotsTimeout     = time.Second     // to read the slots from one node of a cluster
	slotsEvery       = 2 * time.Second
	sentinelTimeout  = 2 * time.Second // to ask one Sentinel
)

// connectRedis connects to a server, a cluster, or the master that Sentinels name, and pings
// it.
func connectRedis(ctx context.Context, redisURL string, login credentials.Redis, poolSize int) (redis.UniversalClient, error) {
	target, err := parseTarget(redisURL, login)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	fail := func(err error) error { return fmt.Errorf("--redis %s: %w", redact.URLs(redisURL), err) }
	if err := target.askSentinels(ctx); err != nil {
		return nil, fail(err)
	}
	client := target.client(poolSize)
	if err := pingAny(ctx, client); err != nil {
		return nil, errors.Join(fail(pingError(err)), client.Close())
	}
	return client, nil
}

// connectReplicas makes the client whose replicas answer reads. No replica has to answer, but
// those that do must permit what lapse needs.
func connectReplicas(ctx context.Context, redisURL string, login credentials.Redis, poolSize int) (*redis.ClusterClient, error) {
	target, err := parseTarget(redisURL, login)
	if err != nil {
		return nil, err
	}
	client := target.replicas(poolSize)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = client.ForEachSlave(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := node.EvalRO(ctx, "return 1", nil).Err(); redis.HasErrorPrefix(err, "NOPERM") {
			return fmt.Errorf("--redis-read-replicas: the user may not run what lapse needs on the replica %s: allow readonly, eval_ro and evalsha_ro in its ACL (deploy/redis/users.acl lists all): %w", node.Options().Addr, err)
		}
		return nil
	})
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil, errors.Join(err, client.Close())
	}
	return client, nil
}

// parseTarget reads the URL and the login.
func parseTarget(redisURL string, login credentials.Redis) (redisTarget, error) {
	target, err := parseRedis(redisURL)
	if err == nil {
		err = target.login(redisURL, login)
	}
	return target, err
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

// pingAll returns an error unless the server answers; of a cluster, every master.
func pingAll(ctx context.Context, client redis.UniversalClient) error {
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
		return fmt.Errorf("the server refuses the user or the password: give others with --redis-user and --redis-password-file: %w", err)
	case redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("the user may not run a command that lapse needs: allow it in the ACL of Redis: %w", err)
	case errors.As(err, &answer):
		return fmt.Errorf("the server answers with an error: %w", err)
	}
	return fmt.Errorf("no Redis answers there: start it, or use another URL: %w", err)
}

// askSentinels returns an error unless a Sentinel knows the master.
func (t redisTarget) askSentinels(ctx context.Context) error {
	if t.sentinel == nil {
		return nil
	}
	err := t.eachSentinel(ctx, func(ctx context.Context, one *redis.SentinelClient) error {
		return one.GetMasterAddrByName(ctx, t.sentinel.MasterName).Err()
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("the Sentinels do not know a master of the name %s: use the name in their line \"sentinel monitor\"", t.sentinel.MasterName)
	case redis.HasErrorPrefix(err, "NOAUTH"), redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOPERM"):
		return fmt.Errorf("%w: it refuses the user or the password: give others with --redis-sentinel-user and --redis-sentinel-password-file", err)
	}
	return fmt.Errorf("no Sentinel answers there: start one, or use other addresses: %w", err)
}

// login adds the users, the passwords and the certificates. New connections read their files
// anew, except for the password of the Sentinels.
func (t redisTarget) login(redisURL string, login credentials.Redis) error {
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
			o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, redisDialTimeout))
		}
	case t.sentinel != nil:
		o := t.sentinel
		o.CredentialsProviderContext = provide
		if secured {
			o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, redisDialTimeout))
		}
		if secret != "" && o.SentinelPassword != "" {
			return errors.New("--redis-sentinel-password-file: the URL has sentinel_password: give the password in one of the two places")
		}
		if secret != "" {
			o.SentinelUsername, o.SentinelPassword = login.SentinelUser, secret
		}
	default:
		o := t.server
		o.CredentialsProviderContext = provide
		if secured {
			o.Dialer = login.Dialer(o.TLSConfig, cmp.Or(o.DialTimeout, redisDialTimeout))
		}
	}
	return nil
}

// client makes a client, which connects when it is first used.
//
// By default go-redis repeats a command after a network error and ignores the deadline of
// its context. But a script must not run twice, and a read must not wait for ever. A client
// of a cluster repeats commands anyway; the fence of a commit then refuses the second.
func (t redisTarget) client(poolSize int) redis.UniversalClient {
	switch {
	case t.cluster != nil:
		return clusterClient(t.cluster, poolSize, false)
	case t.sentinel != nil:
		o := t.sentinel
		o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
		o.DialTimeout = cmp.Or(o.DialTimeout, redisDialTimeout)
		o.ReadTimeout = cmp.Or(o.ReadTimeout, redisTimeout)
		o.WriteTimeout = cmp.Or(o.WriteTimeout, redisTimeout)
		o.PoolSize = cmp.Or(o.PoolSize, poolSize)
		return redis.NewFailoverClient(o)
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

// replicas makes a client whose replicas can be read; nil for one server, which names none.
func (t redisTarget) replicas(poolSize int) *redis.ClusterClient {
	switch {
	case t.cluster != nil:
		return clusterClient(t.cluster, poolSize, true)
	case t.sentinel != nil:
		o := t.sentinel
		return clusterClient(&redis.ClusterOptions{
			ClusterSlots: t.sentinelSlots,
			OnConnect: func(ctx context.Context, c *redis.Conn) error {
				if o.DB == 0 {
					return nil
				}
				return c.Select(ctx, o.DB).Err()
			},
			Dialer: o.Dialer, TLSConfig: o.TLSConfig,
			Username: o.Username, Password: o.Password, CredentialsProviderContext: o.CredentialsProviderContext,
			DialTimeout: o.DialTimeout, ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout, PoolSize: o.PoolSize,
		}, poolSize, true)
	}
	return nil
}

// sentinelSlots asks a Sentinel for the master and the replicas, and describes them as a cluster
// of one master. The client of go-redis that does so leaves a connection behind when it is closed.
func (t redisTarget) sentinelSlots(ctx context.Context) (slots []redis.ClusterSlot, err error) {
	const lastSlot = 16383
	err = t.eachSentinel(ctx, func(ctx context.Context, one *redis.SentinelClient) error {
		master, err := one.GetMasterAddrByName(ctx, t.sentinel.MasterName).Result()
		if err != nil {
			return err
		}
		replicas, err := one.Replicas(ctx, t.sentinel.MasterName).Result()
		if err != nil {
			return err
		}
		nodes := []redis.ClusterNode{{Addr: net.JoinHostPort(master[0], master[1])}}
		for _, r := range replicas {
			if !strings.Contains(r["flags"], "down") && !strings.Contains(r["flags"], "disconnected") {
				nodes = append(nodes, redis.ClusterNode{Addr: net.JoinHostPort(r["ip"], r["port"])})
			}
		}
		slots = []redis.ClusterSlot{{Start: 0, End: lastSlot, Nodes: nodes}}
		return nil
	})
	return slots, err
}

// eachSentinel calls do for one Sentinel after the other, until one answers with what is asked
// for. It returns the first error that a Sentinel has answered, or else the first.
func (t redisTarget) eachSentinel(ctx context.Context, do func(ctx context.Context, one *redis.SentinelClient) error) (first error) {
	o := t.sentinel
	for _, address := range o.SentinelAddrs {
		one := redis.NewSentinelClient(&redis.Options{Addr: address, Dialer: o.Dialer, TLSConfig: o.TLSConfig, Username: o.SentinelUsername, Password: o.SentinelPassword,
			MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		asking, cancel := context.WithTimeout(ctx, sentinelTimeout)
		err := do(asking, one)
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

// clusterClient makes a client of a cluster in which a node that stands still delays nothing
// else. go-redis asks any node for the slots, and only once in a while or when it is redirected,
// so that it would look for a dead master for a minute; and it repeats what has timed out. So
// the slots are asked for often, after each failure, and with a short limit, and a command ends
// at its limit with all its repetitions. The routing policies are off because they ask a node
// about each command at the start.
func clusterClient(o *redis.ClusterOptions, poolSize int, readOnly bool) *redis.ClusterClient {
	o.ReadOnly, o.DisableRoutingPolicies = readOnly, true
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries = -1, true, 1
	o.DialTimeout = cmp.Or(o.DialTimeout, redisDialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, redisTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, redisTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.ClusterStateReloadInterval = slotsEvery
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClusterClient(o)
	client.AddHook(timeLimit{every: o.ReadTimeout, failed: client.ReloadState})
	client.OnNewNode(func(node *redis.Client) { node.AddHook(timeLimit{slots: slotsTimeout}) })
	return client
}

// timeLimit is a hook that limits how long commands take.
type timeLimit struct {
	every  time.Duration             // of every command and pipeline; 0: no limit
	slots  time.Duration             // of CLUSTER SLOTS; 0: no limit
	failed func(ctx context.Context) // is called if a server does not answer; nil: nothing is
}

func (l timeLimit) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l timeLimit) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		most := l.every
		if l.slots > 0 && cmd.FullName() == "cluster slots" {
			most = l.slots
		}
		return l.run(ctx, most, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (l timeLimit) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return l.run(ctx, l.every, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

func (l timeLimit) run(ctx context.Context, most time.Duration, do func(ctx context.Context) error) error {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if most > 0 {
		limited, cancel = context.WithTimeout(ctx, most)
	}
	defer cancel()
	err := do(limited)
	var answer redis.Error
	if err != nil && l.failed != nil && !errors.As(err, &answer) && !errors.Is(err, context.Canceled) {
		l.failed(context.WithoutCancel(ctx))
	}
	return err
}

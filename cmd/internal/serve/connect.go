package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/dial"
)

const (
	connectTimeout = 5 * time.Second
	writeTimeout   = 3 * time.Second // the library holds its lock meanwhile: nobody even learns of the state

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
func (p *process) connect(ctx context.Context, opts Options, embedded *natsServer, name string,
	poolSize int) (c connections, err error) {
	if c.nats, err = connectNATS(opts, embedded, name); err != nil {
		return c, err
	}
	p.opened(func() error { c.nats.Close(); return nil })
	if c.redis, err = opts.Redis.Connect(ctx, poolSize); err != nil {
		return c, err
	}
	p.openedRedis(c.redis)
	return c, nil
}

// connectNATS connects to the servers, or to the embedded one.
//
// After the first connection it reconnects for ever. While there is no connection a publish
// fails at once: the library could send a buffered message twice, or too late. For the same reason it makes no new
// connection while an event is being sent on the former one ([dial.Dialer]). Two pings of 5 seconds find a connection
// that is only half open.
func connectNATS(opts Options, embedded *natsServer, name string) (*nats.Conn, error) {
	log := opts.Logger.With(slog.String("connection", name))
	options := []nats.Option{
		nats.Name("lapse " + name),
		nats.Timeout(connectTimeout),
		nats.FlusherTimeout(writeTimeout),
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
			if opts.malformed.note(log, err, subject) {
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
	where := "--nats " + credentials.RedactURLs(opts.NATS)
	if embedded != nil {
		where = "embedded NATS server"
		options = append(options, nats.InProcessServer(embedded), nats.Token(opts.NATSToken))
	} else {
		options = append(options, nats.SetCustomDialer(dial.New(&net.Dialer{Timeout: connectTimeout})))
	}
	nc, err := nats.Connect(opts.NATS, options...)
	switch {
	case errors.Is(err, nats.ErrNoServers): // the error of nats.go for "connection refused"
		return nil, fmt.Errorf("%s: no NATS server answers there: start it, or use another URL (--nats or LAPSE_NATS)", where)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return nil, fmt.Errorf("%s: cannot connect: %w: the server refuses these credentials", where, err)
	case err != nil:
		return nil, fmt.Errorf("%s: cannot connect: %w", where, err)
	}
	return nc, nil
}

// malformed counts messages whose headers cannot be read. It logs the first one alone: any client can send as many as
// it likes.
type malformed struct {
	prometheus.Counter
	once sync.Once
}

func newMalformed() *malformed {
	return &malformed{Counter: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapse_malformed_headers_total", Help: "Messages from NATS that were dropped because their headers cannot " +
			"be read.",
	})}
}

// note reports whether an error of a connection is about such a message.
func (m *malformed) note(log *slog.Logger, err error, subject string) bool {
	if m == nil || !errors.Is(err, nats.ErrBadHeaderMsg) {
		return false
	}
	m.Inc()
	m.once.Do(func() {
		log.Warn("a client sends messages whose headers cannot be read: they are dropped, and from here on only counted "+
			"(lapse_malformed_headers_total)",
			slog.String("subject", subject))
	})
	return true
}

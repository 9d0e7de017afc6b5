package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	serverName = "lapse"
	storeName  = "nats" // of the directory, in that of the data

	readyEvery = 50 * time.Millisecond

	// What a client can make the server hold, as in deploy/nats/nats.conf.
	mostSubscriptions = 1024 // of a connection
	longestLine       = 2 << 10
)

// natsServer is a NATS server in this process, with JetStream on disk. Any NATS client can
// connect to it.
type natsServer struct {
	*server.Server
	URL     string
	clients *natsClients
	started <-chan struct{} // closed when the start has ended
	fatal   chan string     // has the first fatal error
}

// start starts a server. The channel that it returns is closed when the start has ended.
func start(srv *server.Server) <-chan struct{} {
	started := make(chan struct{})
	go func() {
		defer close(started)
		srv.Start()
	}()
	return started
}

// stop ends a server, and waits until it has closed its store. It waits for the end of the start before: a start
// goes on while the server ends, and makes files.
func stop(srv *server.Server, started <-chan struct{}) {
	<-started
	srv.Shutdown()
	srv.WaitForShutdown()
}

// startNATS starts a server, and returns when it accepts connections of this process. With a large log on
// disk that can take a while. At a port that the user gives it listens only after the call of
// listen. A port that the system chooses is not known before, so there it listens at once.
func startNATS(ctx context.Context, opts Options) (*natsServer, error) {
	host, portText, err := net.SplitHostPort(opts.NATSListen)
	if err != nil {
		return nil, fmt.Errorf("--nats-listen %s: %w", opts.NATSListen, err)
	}
	port, err := net.LookupPort("tcp", portText)
	if err != nil {
		return nil, fmt.Errorf("--nats-listen %s: %w", opts.NATSListen, err)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	size, _, err := disk(opts.Data)
	if err != nil {
		return nil, fmt.Errorf("--data %s: %w", opts.Data, err)
	}
	_, most := shares(opts.openFiles(), true)
	srv, err := server.NewServer(&server.Options{
		MaxConn: most, MaxSubs: mostSubscriptions, MaxControlLine: longestLine,
		ServerName:             serverName,
		Host:                   host,
		Port:                   port,
		DontListen:             port != server.RANDOM_PORT,
		JetStream:              true,
		DisableJetStreamBanner: true,
		StoreDir:               filepath.Join(opts.Data, storeName),
		// the default, 3/4 of the free space, would not follow the disk as limitStore does
		JetStreamMaxStore: int64(size),
		SyncInterval:      opts.NATSSync,
		SyncAlways:        opts.NATSSync == 0,
		Authorization:     opts.NATSToken,
		NoSigs:            true, // this process handles the signals
	})
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	if shards := opts.Processor.Shards; shards > 1 {
		if err := srv.GlobalAccount().AddMapping(opts.Processor.Prefix.Mapping(shards)); err != nil {
			return nil, fmt.Errorf("embedded NATS server: %w", err)
		}
	}
	fatal := make(chan string, 1)
	srv.SetLoggerV2(natsLog{opts.Logger, fatal}, false, false, false)

	s := &natsServer{Server: srv, clients: newNATSClients(srv, most), started: start(srv), fatal: fatal}
	for !srv.ReadyForConnections(readyEvery) {
		select {
		case reason := <-fatal:
			s.stop()
			return nil, errors.New("embedded NATS server: " + reason)
		case <-ctx.Done():
			s.stop()
			return nil, ctx.Err()
		default:
		}
	}
	if at, ok := srv.Addr().(*net.TCPAddr); ok {
		port = at.Port
	}
	s.URL = "nats://" + net.JoinHostPort(cmp.Or(host, server.DEFAULT_HOST), strconv.Itoa(port))
	return s, nil
}

// listen lets clients connect from outside of this process.
func (s *natsServer) listen() error {
	if s.Addr() != nil {
		return nil
	}
	s.AcceptLoop(make(chan struct{})) // it closes the channel
	if s.Addr() != nil || !s.Running() {
		return nil
	}
	select {
	case reason := <-s.fatal:
		return errors.New("embedded NATS server: " + reason)
	default:
		return errors.New("embedded NATS server: it does not listen")
	}
}

// opening is listen, or nil without a server.
func (s *natsServer) opening() func() error {
	if s == nil {
		return nil
	}
	return s.listen
}

// clientURL is the URL for a client in this process, with the token that clients must give; none
// if it is empty.
func (s *natsServer) clientURL(token string) string {
	if token == "" {
		return s.URL
	}
	u := url.URL{Scheme: "nats", User: url.User(token), Host: strings.TrimPrefix(s.URL, "nats://")}
	return u.String()
}

// limitStore lets the streams grow by so many bytes, and no further: what a client publishes then is refused. It is
// unlimited if more is negative. A stream whose write to the disk fails takes nothing more until the server starts
// again, so it must not come to that.
func (s *natsServer) limitStore(more int64) error {
	account := s.GlobalAccount()
	most := int64(-1)
	if more >= 0 {
		most = int64(account.JetStreamUsage().Store) + more
	}
	return account.UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {
		MaxMemory: -1, MaxStore: most, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}})
}

func (s *natsServer) stop() { stop(s.Server, s.started) }

// natsLog takes the log of the server: its warnings, and the reason of its end.
type natsLog struct {
	log   *slog.Logger
	fatal chan string // takes the first fatal error
}

func (l natsLog) Noticef(format string, v ...any) {
	l.log.Debug("embedded NATS server", slog.String("message", fmt.Sprintf(format, v...)))
}

func (l natsLog) Warnf(format string, v ...any) {
	l.log.Warn("embedded NATS server", slog.String("message", fmt.Sprintf(format, v...)))
}

func (l natsLog) Errorf(format string, v ...any) {
	l.log.Error("embedded NATS server", slog.String("message", fmt.Sprintf(format, v...)))
}

func (l natsLog) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
		l.Errorf(format, v...)
	}
}

func (natsLog) Debugf(string, ...any) {}
func (natsLog) Tracef(string, ...any) {}

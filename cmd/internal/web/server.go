// Package web is the HTTP server of lapse: health, metrics, the API of package httpapi, and the
// console of package console.
// [Options.Load] reads the tokens and the certificate (files.go), and [Start] serves
// (server.go).
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/console"
	"github.com/seed18712806/lapse/cmd/internal/httpapi"
	"github.com/seed18712806/lapse/cmd/internal/live"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// Config is what a server serves.
type Config struct {
	*Files
	Prefix  wire.Prefix
	Version string         // of lapse
	Client  *client.Client // for the writes of the API, and live events
	NATS    *nats.Conn     // for reads that renew clocks
	Reader  *sink.Reader
	Dear    *service.Dear                                  // Reader, for the reads of clients
	Ready   func() (role string, problems health.Problems) // of the process
	// closed once requests may be answered; nil is from the beginning
	Opened  <-chan struct{}
	Metrics *prometheus.Registry
	Logger  *slog.Logger
	Trace   func(r *http.Request, route string, writes bool) (end func(status int)) // see httpapi.Options
	First   func() (url, domain string)                                             // see httpapi.Options
	// Readers are the accounts in which lapse keeps mirrors of the events.
	Readers []string
	// Connections is how many connections the server has at most.
	Connections int
}

// handler answers /healthz (200 as long as the process lives), /readyz (200, or 503 with
// the reasons) and /metrics. They need no token. The guard keeps the latter two from pages of other sites.
func handler(guard *access.Guard, ready func() (string, health.Problems), metrics *prometheus.Registry) *access.Router {
	server := access.NewRouter()
	guarded := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var p *access.Problem
			if errors.As(guard.Check(r), &p) {
				p.Write(w)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	server.Handle(http.MethodGet, "/healthz", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok\n")
	}))
	server.Handle(http.MethodGet, "/readyz", guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		role, problems := ready()
		if problems != nil {
			text := problems.Error() + "\n\nWhat to do:\n" + strings.Join(problems.Links(), "\n")
			http.Error(w, text, http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, role+"\n")
	})))
	server.Handle(http.MethodGet, "/metrics",
		guarded(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{Registry: metrics})))
	return server
}

// Server is a running server.
type Server struct {
	http    *http.Server
	events  *live.Hub
	end     context.CancelFunc // ends what the console records
	records sync.WaitGroup
}

// Start serves on a listener until [Server.Stop]. If the server ends before that, it sends the
// error to failed.
func Start(l net.Listener, c Config, failed chan<- error) (*Server, error) {
	events := live.New(c.Client)
	sliding := service.Sliding{Reader: c.Dear, NATS: c.NATS, Prefix: c.Prefix, Slides: service.SlidesTotal("http")}
	if err := c.Metrics.Register(sliding.Slides); err != nil {
		return nil, err
	}
	api, err := httpapi.New(httpapi.Options{
		Prefix: c.Prefix, Client: c.Client, Events: events, Reader: sliding, GetMany: c.Reader.GetMany,
		Tokens: c.tokens, Origins: c.origins, Metrics: c.Metrics, Logger: c.Logger, Trace: c.Trace, First: c.First,
	})
	if err != nil {
		return nil, err
	}
	all, ofAPI := handler(&access.Guard{Tokens: c.tokens}, c.Ready, c.Metrics), access.NewRouter()
	api.Register(all)
	api.Register(ofAPI)
	site := console.New(console.Options{
		Prefix: c.Prefix, Version: c.Version, API: ofAPI, Tokens: c.tokens, Events: events, Status: c.Client.Status,
		Client: c.Client, Accounts: c.Readers,
		Ready: c.Ready, Metrics: c.Metrics, MaxBody: c.Client.MaxPayload, Bytes: api.Bytes(), Proxies: c.proxies,
		Logger: c.Logger, First: c.First,
		Collections: func(ctx context.Context, most int) (wire.CollectionsReply, error) {
			return c.Reader.Collections(ctx, sink.CollectionsOptions{Limit: most})
		},
	})
	site.Register(all)
	conns := newConnections(l, c.Connections, c.certificate == nil)
	if err := errors.Join(c.Metrics.Register(conns.opened), c.Metrics.Register(conns.closed)); err != nil {
		return nil, err
	}
	recording, end := context.WithCancel(context.Background())
	s := &Server{events: events, end: end, http: &http.Server{
		Handler:           conns.handler(waiting(c.Opened, all)),
		ConnContext:       conns.context,
		MaxHeaderBytes:    32 << 10,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // imports and event streams set their own
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		// what clients do wrong, such as a failed TLS handshake
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // its answers lack a header that each answer has
	}}
	serve := s.http.Serve
	if c.certificate != nil {
		s.http.TLSConfig = c.certificate.Config()
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	s.records.Go(func() { site.Run(recording) })
	go func() {
		if err := serve(conns); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("HTTP server: %w", err)
		}
	}()
	return s, nil
}

// EndStreams ends the event streams. Their clients connect again, to another process.
func (s *Server) EndStreams() { s.events.Close() }

// Stop gives the requests in flight a second to end.
func (s *Server) Stop() {
	s.EndStreams()
	s.end()
	s.records.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

// waiting lets requests wait until opened is closed, but for those about the process itself. The process
// closes it after a few seconds at the latest.
func waiting(opened <-chan struct{}, next http.Handler) http.Handler {
	if opened == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
		default:
			select {
			case <-opened:
			case <-r.Context().Done():
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

package serve

import (
	"log/slog"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/service"
)

// newRegistry makes a registry with the metrics of the Go runtime and of the process. The
// processor adds its own.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	return r
}

// apiConnections are those of the API, so that its clients delay neither the log nor the reads
// over NATS.
type apiConnections struct {
	nats   *nats.Conn
	client *client.Client
}

// connectAPI connects the API to NATS, until p is closed.
func (p *process) connectAPI(opts Options, embedded *natsServer) (c apiConnections, err error) {
	if c.nats, err = connectNATS(opts, embedded, "http"); err != nil {
		return c, err
	}
	p.opened(func() error { c.nats.Close(); return nil })
	at, inProcess := opts.NATS, nats.InProcessConnProvider(nil)
	if embedded != nil {
		at, inProcess = embedded.clientURL(opts.NATSToken), embedded
	}
	log := opts.Logger.With(slog.String("connection", "http writes"))
	c.client, err = client.Connect(client.Options{
		Server: at, InProcess: inProcess, Prefix: opts.Processor.Prefix, Login: opts.NATSLogin,
		Notice: func(text string) { log.Warn("NATS", slog.String("message", text)) },
	})
	if err != nil {
		return c, err
	}
	p.opened(func() error { c.client.Close(); return nil })
	return c, nil
}

// startWeb serves HTTP until the server is stopped.
func (p *process) startWeb(reader *sink.Reader, dear *service.Dear, n *node, g *gate, metrics *prometheus.Registry,
	failed chan<- error) (*web.Server, error) {
	c := web.Config{
		Files: p.files, Prefix: p.opts.Processor.Prefix, Version: p.opts.Version, Client: p.api.client, NATS: p.api.nats,
		Reader: reader, Dear: dear, Ready: g.ready(n.ready), Opened: g.opened, Metrics: metrics, Logger: p.opts.Logger,
		Readers: p.opts.Processor.Readers,
	}
	c.Connections, _ = shares(p.opts.openFiles(), p.embedded != nil)
	if n.first != nil {
		c.First = n.first.now
	}
	if p.tracer != nil {
		c.Trace = p.tracer.Request
	}
	return web.Start(p.http, c, failed)
}

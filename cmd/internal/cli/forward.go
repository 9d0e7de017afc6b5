package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed18712806/lapse/cmd/internal/forward"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// consumed is the flags of a command that consumes events durably.
type consumed struct {
	Warnings bool
	Changes  bool
	Due      string   `placeholder:"TARGET"`
	Since    *Instant `placeholder:"TIME"`
	Once     bool
	Consumer string `name:"name" placeholder:"NAME"`
}

// messages are the messages to consume, by a consumer that is named after the command and them.
func (c *consumed) messages(command, collection string) (client.OrderedOptions, error) {
	opts := client.OrderedOptions{Durable: c.Consumer, Collection: collection, Warnings: c.Warnings, Changes: c.Changes,
		Due: c.Due, Once: c.Once}
	what := collection
	if c.Due != "" {
		if collection != "" || c.Warnings || c.Changes {
			return opts, output.Usagef("--due takes the place of a collection, of --warnings and of --changes: leave these " +
				"out, or --due")
		}
		if c.Due != ">" {
			if err := output.Usage(wire.CheckTarget(strings.TrimSuffix(c.Due, ".>"))); err != nil {
				return opts, err
			}
		}
		what = "due-" + strings.NewReplacer(">", "all", ".", "-").Replace(c.Due)
	} else if err := CheckCollection(collection); err != nil {
		return opts, err
	}
	if opts.Durable == "" {
		opts.Durable = command + "-" + what
	}
	if c.Since != nil && !c.Since.Now {
		opts.Since = &c.Since.Time
	}
	return opts, nil
}

// Forward posts events to a receiver.
type Forward struct {
	Collection string `arg:"" optional:""`
	URL        string `arg:"" optional:"" name:"url"`
	consumed
	URLFile     string `name:"url-file" type:"existingfile" placeholder:"FILE"`
	SecretFile  string `type:"existingfile" placeholder:"FILE"`
	Binary      bool
	Concurrency int    `default:"16" placeholder:"N"`
	GiveUpAfter Period `default:"24h" placeholder:"TIME"`
	LongestWait Period `default:"1m" placeholder:"TIME"`
	RequestTime Period `name:"request-timeout" default:"15s" placeholder:"TIME"`
	Authorities string `name:"url-ca" type:"existingfile" placeholder:"FILE"`
	Metrics     string `name:"metrics-listen" placeholder:"HOST:PORT"`
	Dead        bool
	Resend      bool
	Connection
}

// Run runs the command.
func (c *Forward) Run(ctx context.Context, streams output.Streams) error {
	if c.URLFile == "" && c.URL == "" && (c.Due != "" || c.Collection == "") {
		c.Collection, c.URL = "", c.Collection
	}
	if err := c.readURL(); err != nil {
		return err
	}
	opts, err := c.options(streams)
	if err != nil {
		return err
	}
	eachReadable([][2]string{{"--secret-file", c.SecretFile}, {"--url-file", c.URLFile}},
		func(flag, file string, mode os.FileMode) {
			streams.Notice(fmt.Sprintf("%s %s (%s): %s", flag, file, mode, readableFile))
		})
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch {
	case c.Dead:
		return forward.ListDead(ctx, conn, prefix, opts.Messages.Durable,
			func(l forward.Letter) error { return c.print(streams, l) })
	case c.Resend:
		return c.resend(ctx, streams, conn, prefix, opts)
	}
	if c.Metrics != "" {
		registry := prometheus.NewRegistry()
		opts.Metrics = registry
		end, err := serveMetrics(c.Metrics, registry, streams)
		if err != nil {
			return err
		}
		defer end()
	}
	_, _ = fmt.Fprintf(streams.Err, "forwarding as %s\n", opts.Messages.Durable)
	return gone(forward.Run(ctx, conn, prefix, opts))
}

// readURL reads the URL from its file, if there is one.
func (c *Forward) readURL() error {
	switch {
	case c.URLFile == "":
		return nil
	case c.URL != "":
		return output.Usagef("--url-file takes the place of the URL: leave one of them out")
	}
	content, err := os.ReadFile(c.URLFile)
	if err != nil {
		return output.Usagef("--url-file %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	if c.URL = strings.TrimSpace(line); c.URL == "" {
		return output.Usagef("--url-file %s: its first line is empty: the URL must be there", c.URLFile)
	}
	return nil
}

// options checks the flags and arguments.
func (c *Forward) options(streams output.Streams) (opts forward.Options, err error) {
	messages, err := c.messages("forward", c.Collection)
	if err != nil || c.Dead && c.URL == "" {
		return forward.Options{Messages: messages}, err
	}
	if err := forward.CheckURL(c.URL); err != nil {
		return opts, output.Usage(err)
	}
	if c.SecretFile == "" {
		return opts, output.Usagef("--secret-file is missing: the receiver needs the signature to know that an event is " +
			"from lapse")
	}
	if c.Concurrency < 1 || c.GiveUpAfter <= 0 || c.LongestWait <= 0 || c.RequestTime <= 0 {
		return opts, output.Usagef("--concurrency, --give-up-after, --longest-wait and --request-timeout must be over 0")
	}
	opts = forward.Options{
		URL: c.URL, Binary: c.Binary, Concurrency: c.Concurrency, GiveUpAfter: time.Duration(c.GiveUpAfter),
		LongestWait: time.Duration(c.LongestWait), Timeout: time.Duration(c.RequestTime), Messages: messages,
		Notice: streams.Notice,
	}
	if opts.Secrets, err = forward.ReadSecrets(c.SecretFile); err != nil {
		return opts, output.Usagef("--secret-file %w", err)
	}
	if c.Authorities != "" {
		content, err := os.ReadFile(c.Authorities)
		if err != nil {
			return opts, output.Usagef("--url-ca %w", err)
		}
		if opts.Authorities = x509.NewCertPool(); !opts.Authorities.AppendCertsFromPEM(content) {
			return opts, output.Usagef("--url-ca %s: it has no certificate: use a file of certificates in PEM form",
				c.Authorities)
		}
	}
	return opts, nil
}

// gone gives an answer of 410 its exit code.
func gone(err error) error {
	if errors.Is(err, forward.ErrGone) {
		return output.Statusf(http.StatusGone, "%s", err)
	}
	return err
}

func (c *Forward) print(streams output.Streams, l forward.Letter) error {
	return c.Connection.print(streams, l, "%s dead %s: %s", wire.Time(l.At.UnixMilli()), output.Name(l.ID), l.Reason)
}

func (c *Forward) resend(
	ctx context.Context, streams output.Streams, conn *client.Client, prefix wire.Prefix, opts forward.Options,
) error {
	sent, left, err := forward.Resend(ctx, conn, prefix, opts)
	if err != nil {
		return gone(err)
	}
	err = c.Connection.print(streams, map[string]int{"sent": sent, "left": left}, "sent %d dead letters", sent)
	if err == nil && left > 0 {
		err = output.Printed(fmt.Errorf("the receiver did not take %d dead letters: they are still there", left))
	}
	return err
}

// serveMetrics serves /metrics until end is called.
func serveMetrics(address string, registry *prometheus.Registry, streams output.Streams) (end func(), err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen %s: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	_, _ = fmt.Fprintf(streams.Err, "metrics at http://%s/metrics\n", l.Addr())
	return func() { _ = server.Close() }, nil
}

// Archive writes events into files.
type Archive struct {
	Collection string `arg:"" optional:""`
	Dir        string `arg:"" optional:"" name:"dir"`
	consumed
	Connection
}

// Run runs the command.
func (c *Archive) Run(ctx context.Context, streams output.Streams) error {
	if c.Dir == "" && (c.Due != "" || c.Collection == "") {
		c.Collection, c.Dir = "", c.Collection
	}
	if c.Dir == "" {
		return output.Usagef("the directory is missing: give the directory for the files")
	}
	messages, err := c.messages("archive", c.Collection)
	if err != nil {
		return err
	}
	release, err := serve.Lock(c.Dir)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	defer func() { _ = release() }()
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	name := c.Collection
	if c.Due != "" {
		name = strings.TrimPrefix(messages.Durable, "archive-")
	}
	_, _ = fmt.Fprintf(streams.Err, "archiving as %s\n", messages.Durable)
	return forward.Archive(ctx, conn, prefix, forward.ArchiveOptions{
		Dir: c.Dir, Name: name, Messages: messages,
		Create: func(name string) (io.Writer, func(error) error, error) { return createBackup(name, streams) },
	})
}

package rig

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/pprof"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor"
)

// ChildCommand is the argument that makes this program run the processor.
const ChildCommand = "processor"

// RunChild runs the processor alone, with HTTP endpoints for CPU profiles: GET
// /profile/start begins one, GET /profile/stop ends it and returns it.
func RunChild(ctx context.Context, args []string, _, stderr io.Writer) error {
	f := flag.NewFlagSet(ChildCommand, flag.ContinueOnError)
	natsURL := f.String("nats", "", "")
	redisURL := f.String("redis", "", "")
	listen := f.String("http-listen", "", "")
	shards := f.Int("shards", 1, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	nc, err := nats.Connect(*natsURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	o, err := redis.ParseURL(*redisURL)
	if err != nil {
		return err
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	client := redis.NewClient(o)
	defer func() { _ = client.Close() }()
	p, err := processor.New(nc, client, processor.Options{
		Shards: *shards, OpenCollections: true,
		Logger: slog.New(slog.NewTextHandler(stderr, nil)),
	})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: *listen, Handler: childHandler(p), ReadHeaderTimeout: time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	err = p.Run(ctx)
	_ = server.Close()
	if served := <-failed; err == nil && !errors.Is(served, http.ErrServerClosed) {
		err = served
	}
	return err
}

func childHandler(p *processor.Processor) http.Handler {
	var profile bytes.Buffer
	mux := http.NewServeMux()
	handle := func(path string, do func(w http.ResponseWriter) error) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if err := do(w); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	handle("/readyz", func(w http.ResponseWriter) error {
		if err := p.Ready(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, "ready")
		return err
	})
	handle("/profile/start", func(http.ResponseWriter) error {
		profile.Reset()
		return pprof.StartCPUProfile(&profile)
	})
	handle("/profile/stop", func(w http.ResponseWriter) error {
		pprof.StopCPUProfile()
		_, err := w.Write(profile.Bytes())
		return err
	})
	return mux
}

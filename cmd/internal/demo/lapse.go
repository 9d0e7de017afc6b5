package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/wire"
)

// lapse is a running lapse.
type lapse struct {
	dir    string // its data, and nothing else
	at     addresses
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // of its end, once ended is closed
}

// addresses are those of the ready file. They are empty if lapse was stopped before it was ready.
type addresses struct{ NATS, HTTP string }

// start starts lapse on free ports, and returns when it is ready or ctx is done. The caller then
// stops it.
func start(ctx context.Context, opts Options, streams output.Streams) (*lapse, error) {
	listen := opts.HTTPListen
	if listen == "" {
		listen = freeAddress(defaultHTTP)
	}
	dir, err := os.MkdirTemp("", "lapse-demo-")
	if err != nil {
		return nil, err
	}
	l := &lapse{dir: dir, ended: make(chan struct{})}
	var serving context.Context
	serving, l.cancel = context.WithCancel(context.WithoutCancel(ctx)) // the traffic ends first
	readyFile := filepath.Join(dir, "ready")
	go func() {
		defer close(l.ended)
		l.err = serve.Run(serving, serve.Options{
			Version:    opts.Version,
			Logger:     slog.New(slog.NewTextHandler(streams.Err, &slog.HandlerOptions{Level: slog.LevelWarn})),
			NATSListen: "127.0.0.1:0", NATSSync: time.Minute, Data: dir,
			HTTP: web.Options{Listen: listen}, ReadyFile: readyFile,
			Processor: processor.Options{Prefix: wire.DefaultPrefix},
		})
	}()
	if err := l.ready(ctx, readyFile); err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

// freeAddress is the address, or one with any port if somebody else listens there.
func freeAddress(address string) string {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close()
	return address
}

// ready waits until lapse has written its ready file, has ended, or ctx is done.
func (l *lapse) ready(ctx context.Context, file string) error {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		content, err := os.ReadFile(file)
		if err == nil {
			return json.Unmarshal(content, &l.at)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-again.C:
		case <-l.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// stop ends lapse, removes its data, and returns the error with which it ended.
func (l *lapse) stop() error {
	l.cancel()
	<-l.ended
	if err := os.RemoveAll(l.dir); err != nil {
		return errors.Join(l.err, fmt.Errorf("remove the data of the demo: %w", err))
	}
	return l.err
}

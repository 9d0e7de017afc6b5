package serve

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Offline opens the data directory of an embedded lapse that does not run. Nobody else can
// connect. The caller has to call closed.
func Offline(ctx context.Context, dir string) (nc *nats.Conn, closed func(), err error) {
	release, err := lockData(dir)
	if err != nil {
		return nil, nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: serverName, JetStream: true, StoreDir: filepath.Join(dir, storeName), DontListen: true, NoSigs: true,
		NoLog: true,
	})
	if err != nil {
		_ = release()
		return nil, nil, fmt.Errorf("--data %s: %w", dir, err)
	}
	started := start(srv)
	closed = func() {
		if nc != nil {
			nc.Close()
		}
		stop(srv, started)
		_ = release()
	}
	for !srv.ReadyForConnections(readyEvery) {
		if ctx.Err() != nil || isClosed(started) && !srv.Running() {
			closed()
			return nil, nil, fmt.Errorf("--data %s: the embedded NATS server does not start: lapse serve says why", dir)
		}
	}
	if nc, err = nats.Connect("", nats.InProcessServer(srv)); err != nil {
		closed()
		return nil, nil, fmt.Errorf("--data %s: %w", dir, err)
	}
	return nc, closed, nil
}

// isClosed reports whether a channel is closed on which nothing is sent.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

package live

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestServeFails: a client gets an error, and not the beginning of a stream, if it may hold nothing, or if it cannot be
// found out whether the stream has what the client lacks. The operator sees that the reading has failed.
func TestServeFails(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
	r.publish("orders", "orders", "orders")
	r.tailAt(3)
	after := uint64(1)
	fails := func(most int64, want func(error) bool) {
		t.Helper()
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", most))
		defer hold.Leave()
		w := httptest.NewRecorder()
		reason, err := r.hub.Serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil),
			Request{After: &after}, hold)
		if reason != Failed || !want(err) || w.Body.Len() > 0 {
			t.Errorf("it ends with %q, %v, and has sent %q", reason, err, w.Body)
		}
	}
	fails(1, func(err error) bool { return err != nil })
	if err := js.DeleteStream(t.Context(), wire.DefaultPrefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	fails(256<<20, func(err error) bool {
		return errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, context.Canceled) // by the end of the tail
	})
}

// A client that takes nothing is slow, and one that closes its connection has left. The
// connection is a pipe, so the time that the test waits for is not real.
func TestSlowOrLeft(t *testing.T) {
	for want, client := range map[Reason]func(net.Conn){
		Slow: func(net.Conn) {},
		Left: func(c net.Conn) { _ = c.Close() },
	} {
		t.Run(string(want), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed, cancel := context.WithCancel(t.Context())
				defer cancel()
				hub := &Hub{closed: closed}
				got := make(chan Reason, 1)
				begin := time.Now()
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					s := &stream{w: w, rc: http.NewResponseController(w)}
					err := s.send([][]byte{[]byte("retry: 1\n\n")})
					for err == nil {
						err = s.send([][]byte{make([]byte, 64<<10)})
					}
					got <- hub.reason(err, r.Context())
				})}
				there, here := net.Pipe()
				l := &listener{conns: make(chan net.Conn, 1)}
				l.conns <- there
				var serving sync.WaitGroup
				serving.Go(func() { _ = server.Serve(l) })
				if _, err := here.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
					t.Fatal(err)
				}
				if _, err := here.Read(make([]byte, 1024)); err != nil {
					t.Fatal(err)
				}
				client(here)
				if reason := <-got; reason != want {
					t.Errorf("the reason is %s, want %s", reason, want)
				}
				if took := time.Since(begin); want == Slow && took != sendWithin {
					t.Errorf("it was dropped after %s, want %s", took, sendWithin)
				}
				_ = here.Close()
				_ = server.Close()
				serving.Wait()
			})
		})
	}
}

// listener has one connection.
type listener struct {
	conns chan net.Conn
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.conns) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }

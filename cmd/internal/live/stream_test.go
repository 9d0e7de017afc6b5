package live

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestServeFails: a client gets an error, and not the beginning of a stream, if it may hold nothing, if its connection
// cannot be kept open, or if nobody can say whether the stream has what the client lacks. The operator sees why.
func TestServeFails(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{})
	r := newRig(t, js, js.Conn().ConnectedUrl(), 1)
	r.publish("orders", "orders", "orders")
	r.tailAt(3)
	for _, most := range []int64{1, 256 << 20} {
		hold := access.NewHold(access.Client{}, access.NewLimit("bytes", "bytes", most))
		w := httptest.NewRecorder() // which has no deadlines
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if reason, err := r.hub.Serve(w, request, Request{}, hold); reason != Failed || err == nil || w.Body.Len() > 0 {
			t.Errorf("with %d bytes, it ends with %q, %v, and has sent %q", most, reason, err, w.Body)
		}
		hold.Leave()
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if tail, err := r.hub.start(ended); tail == nil && err == nil {
		t.Error("a reading that has not begun is no error")
	}
	if err := js.DeleteStream(t.Context(), wire.DefaultPrefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.web.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask.Header.Set("Last-Event-ID", "1")
	resp, err := r.web.Client().Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a stream, the answer is %s", resp.Status)
	}
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

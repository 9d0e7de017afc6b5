package web

import (
	"container/list"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

// connections is a listener that limits its connections, since each takes a file of the process. A new connection
// takes the place of the one that has had no request for the longest time. While every connection has a request, the
// new one is refused. Several goroutines may use it.
type connections struct {
	net.Listener
	most  int
	plain bool // without TLS, so a refusal can say why

	opened prometheus.GaugeFunc
	closed *prometheus.CounterVec // by reason

	mu      sync.Mutex
	open    int
	idle    *list.List // of *conn: those without a request, the first of them for the longest time
	goodbye int        // connections that are being refused
}

// mostGoodbyes limits the connections that get an answer when they are refused. Others are closed at once.
const mostGoodbyes = 64

// The reasons for which connections are closed by the limit.
const (
	closedIdle    = "idle"    // a new connection took its place
	closedRefused = "refused" // every connection had a request
)

func newConnections(l net.Listener, most int, plain bool) *connections {
	c := &connections{Listener: l, most: most, plain: plain, idle: list.New()}
	c.opened = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "lapse", Name: "http_connections",
		Help: fmt.Sprintf("Connections to the HTTP server. At most %d are allowed.", most),
	}, func() float64 { c.mu.Lock(); defer c.mu.Unlock(); return float64(c.open) })
	c.closed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lapse", Name: "http_connections_closed_total",
		Help: "Connections to the HTTP server that its limit has closed: idle ones, whose place a new one took, and new " +
			"ones that it refused.",
	}, []string{"reason"})
	c.closed.WithLabelValues(closedIdle)
	c.closed.WithLabelValues(closedRefused)
	return c
}

// Accept implements [net.Listener].
func (l *connections) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: nc, of: l}
		idle, ok := l.admit(c)
		if idle != nil {
			_ = idle.Conn.Close() // the server finds out when it reads
		}
		if ok {
			return c, nil
		}
		l.refuse(nc)
	}
}

// admit counts a connection, if there is a place for it, and returns the one that has to make that place.
func (l *connections) admit(c *conn) (idle *conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most {
		first := l.idle.Front()
		if first == nil {
			l.closed.WithLabelValues(closedRefused).Inc()
			return nil, false
		}
		l.closed.WithLabelValues(closedIdle).Inc()
		idle = first.Value.(*conn)
		idle.leave()
	}
	l.open++
	c.place = l.idle.PushBack(c)
	return idle, true
}

// refuse ends a connection, and tells the client why.
func (l *connections) refuse(nc net.Conn) {
	l.mu.Lock()
	tell := l.plain && l.goodbye < mostGoodbyes
	if tell {
		l.goodbye++
	}
	l.mu.Unlock()
	if !tell {
		_ = nc.Close()
		return
	}
	go func() {
		defer func() {
			_ = nc.Close()
			l.mu.Lock()
			l.goodbye--
			l.mu.Unlock()
		}()
		_ = nc.SetDeadline(time.Now().Add(time.Second))
		response := &refusal{header: http.Header{"Connection": {"close"}}}
		access.NewProblem(http.StatusServiceUnavailable, access.TooMany+"connections",
			"this process has %d connections, and allows %d: try again, or ask another process", l.most, l.most).Write(response)
		_, _ = nc.Write(response.text)
		if tcp, ok := nc.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, nc, 64<<10) // what the client has sent; otherwise the system would take the answer back
		}
	}()
}

// refusal is the text of an answer.
type refusal struct {
	header http.Header
	text   []byte
}

func (r *refusal) Header() http.Header { return r.header }

func (r *refusal) WriteHeader(status int) {
	r.text = fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for name, values := range r.header {
		r.text = fmt.Appendf(r.text, "%s: %s\r\n", name, values[0])
	}
	r.text = append(r.text, "\r\n"...)
}

func (r *refusal) Write(b []byte) (int, error) {
	r.text = append(r.text, b...)
	return len(b), nil
}

// conn is a connection of the HTTP server. The lock of its listener guards it.
type conn struct {
	net.Conn
	of       *connections
	left     bool
	requests int           // that are under way
	place    *list.Element // among the idle ones; nil while there are requests
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// leave stops counting the connection. The caller has the lock.
func (c *conn) leave() {
	if c.left {
		return
	}
	c.left = true
	c.of.open--
	if c.place != nil {
		c.of.idle.Remove(c.place)
		c.place = nil
	}
}

type connKey struct{}

// context is the context of the requests of a connection; for [http.Server].
func (*connections) context(ctx context.Context, nc net.Conn) context.Context {
	if secure, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, nc)
}

// handler notes for each connection which requests are under way.
func (*connections) handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.begin()
			defer c.end()
		}
		h.ServeHTTP(w, r)
	})
}

func (c *conn) begin() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.requests++
	if c.place != nil {
		c.of.idle.Remove(c.place)
		c.place = nil
	}
}

func (c *conn) end() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.requests--; c.requests == 0 && !c.left {
		c.place = c.of.idle.PushBack(c)
	}
}

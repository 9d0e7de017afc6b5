// Package proxy has proxies that make the connections to a server fail when a test wants it.
package proxy

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is one of the two ways through a proxy.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// patience is how long a connection to the server may take. A server that is there takes it at once,
// but a busy machine may not run the proxy for seconds.
const patience = 30 * time.Second

// Proxy forwards TCP connections to a server, and makes them fail when a test wants it.
// It is safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	closed   chan struct{}
	wg       sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	down    bool
	delay   [2]time.Duration
	held    [2]chan struct{} // closed by Release; nil if the direction is not held
	trap    *trap
	refused int
}

// trap cuts one connection within a reply.
type trap struct {
	match  func(request []byte) bool
	after  int
	sprung chan struct{}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	trap           *trap // set once the request was forwarded; guarded by Proxy.mu
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// New starts a proxy for an address, on a free port. It stops when the test ends.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, listener: listener, closed: make(chan struct{}), links: map[*link]bool{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		close(p.closed)
		_ = p.listener.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Address returns the address on which the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut closes every connection. Clients can connect again.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Down closes every connection, and refuses new ones until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Cut()
}

// Up accepts connections again.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Refused returns the number of connections that were refused.
func (p *Proxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Delay delays all data of a direction by d from now on; 0 ends it.
func (p *Proxy) Delay(way Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[way] = d
}

// Hold holds the data of a direction until Release. Connections stay open and no data is
// lost, as if the peer had vanished.
func (p *Proxy) Hold(way Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[way] == nil {
		p.held[way] = make(chan struct{})
	}
}

// Release ends Hold in both directions, and forwards the data that was held.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for way, held := range p.held {
		if held != nil {
			close(held)
			p.held[way] = nil
		}
	}
}

// CutReply waits for one request that matches (nil: any) and forwards it. It closes the
// connection after it has forwarded so many bytes of the reply, and then the channel.
func (p *Proxy) CutReply(match func(request []byte) bool, after int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = &trap{match: match, after: after, sprung: make(chan struct{})}
	return p.trap.sprung
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Add(1)
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	defer client.Close()
	p.mu.Lock()
	down := p.down
	if down {
		p.refused++
	}
	p.mu.Unlock()
	if down {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, patience)
	if err != nil {
		return
	}
	l := &link{client: client, server: server}
	defer l.close()
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, ToServer, client, server) })
	both.Go(func() { p.pump(l, ToClient, server, client) })
	both.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closed:
		return false
	default:
	}
	if p.down {
		return false
	}
	p.links[l] = true
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// pump forwards one direction until an end closes, and then closes both ends.
func (p *Proxy) pump(l *link, way Direction, from, to net.Conn) {
	defer l.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !p.wait(way) {
			return
		}
		chunk, sprung := p.throughTrap(l, way, buffer[:n])
		if _, err := to.Write(chunk); err != nil {
			return
		}
		if sprung != nil {
			l.close()
			close(sprung)
			return
		}
	}
}

// wait delays and holds a chunk. It returns false if the proxy closes meanwhile.
func (p *Proxy) wait(way Direction) bool {
	p.mu.Lock()
	delay, held := p.delay[way], p.held[way]
	p.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.closed:
			return false
		}
	}
	if held != nil {
		select {
		case <-held:
		case <-p.closed:
			return false
		}
	}
	return true
}

// throughTrap returns the part of a chunk to forward, and the channel of the trap if the
// connection is to be cut after it.
func (p *Proxy) throughTrap(l *link, way Direction, chunk []byte) ([]byte, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if way == ToServer {
		if p.trap != nil && (p.trap.match == nil || p.trap.match(chunk)) {
			l.trap, p.trap = p.trap, nil
		}
		return chunk, nil
	}
	if l.trap == nil {
		return chunk, nil
	}
	if len(chunk) < l.trap.after {
		l.trap.after -= len(chunk)
		return chunk, nil
	}
	return chunk[:l.trap.after], l.trap.sprung
}

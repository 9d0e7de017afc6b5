package harness

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

// Proxy passes TCP connections on to a server, and misbehaves when told to. It
// is safe for concurrent use.
type Proxy struct {
	target   string
	listener net.Listener
	closed   chan struct{}
	wg       sync.WaitGroup

	mu      sync.Mutex
	links   map[*link]bool
	down    bool
	delay   [2]time.Duration
	held    [2]chan struct{} // closed when let go; nil if not held
	trap    *trap
	refused int
}

// trap cuts one connection in the middle of a reply.
type trap struct {
	match  func(request []byte) bool
	after  int
	sprung chan struct{}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	trap           *trap // set once its request has gone by; under Proxy.mu
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// NewProxy starts a proxy before an address. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", Address(FreePort(t)))
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

// Address is where it listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut closes every connection. New ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Down cuts every connection, and every new one at once, until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Cut()
}

// Up ends Down.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Refused is the number of connections that were cut at once.
func (p *Proxy) Refused() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// Delay holds up whatever goes in a direction by d from now on; 0 ends it.
func (p *Proxy) Delay(way Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[way] = d
}

// Hold lets nothing through in a direction, while connections stay open (a
// peer that has vanished without a word), until Release. Nothing is lost by it.
func (p *Proxy) Hold(way Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[way] == nil {
		p.held[way] = make(chan struct{})
	}
}

// Release ends Hold, in both directions: what was held goes on.
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

// CutReply waits for one request that matches (nil: any), passes it on, and
// cuts its connection once that many bytes of what the server then answers
// have gone by. The channel is closed when it has happened.
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
	server, err := net.DialTimeout("tcp", p.target, time.Second)
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

// pump moves bytes one way until an end closes, and then closes both.
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

// wait is what delays and holds a chunk. It is false if the proxy closes meanwhile.
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

// throughTrap is the part of a chunk that goes on, and what to close after it
// if the trap has sprung.
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

package dial

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// severable is a dialer whose last connection a test can end.
type severable struct {
	mu   sync.Mutex
	conn net.Conn
}

func (s *severable) Dial(network, address string) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, 10*time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
	return conn, err
}

func (s *severable) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.conn.Close()
}

// until waits until something is so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// TestNoOtherConnectionWhileSomebodySends: the connection is lost while somebody sends. What is sent from then on fails,
// and nothing of it comes over the next connection, which is there once the sender has ended.
//
// It fails if the client library connects again in between, or keeps the message for the next connection.
func TestNoOtherConnectionWhileSomebodySends(t *testing.T) {
	t.Parallel()
	url := natstest.Start(t, natstest.Options{})
	by := &severable{}
	d := New(by)
	failed := make(chan error, 100)
	nc, err := nats.Connect(url, natstest.Patient, nats.SetCustomDialer(d), nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			select {
			case failed <- err:
			default:
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	all, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(all.Close)
	heard, err := all.SubscribeSync("x")
	if err != nil || all.Flush() != nil {
		t.Fatal(err)
	}

	number := d.Number()
	if !d.Begin(number) {
		t.Fatal("a connection that was just made is another one")
	}
	by.sever()
	select {
	case err := <-failed:
		if !errors.Is(err, errSending) {
			t.Fatalf("it connects while somebody sends: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("within a minute no attempt to connect has failed while somebody sends")
	}
	if err := nc.Publish("x", []byte("late")); err == nil {
		t.Error("a message was sent without a connection")
	}
	d.End()
	until(t, "it connects again", nc.IsConnected)
	if d.Begin(number) {
		t.Error("another connection has the number of the former one")
	}
	if !d.Begin(d.Number()) {
		t.Fatal("nothing can be sent on the new connection")
	}
	defer d.End()
	if err := nc.Publish("x", []byte("now")); err != nil {
		t.Fatal(err)
	}
	if m, err := heard.NextMsg(30 * time.Second); err != nil || string(m.Data) != "now" {
		t.Errorf("%v, %v", m, err)
	}
}

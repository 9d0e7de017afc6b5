package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/oracle/stored"
)

func TestMain(m *testing.M) { Main(m) }

func TestNATSKeepsItsPortAndStore(t *testing.T) {
	server := StartNATS(t, NATSOptions{MaxPayload: 100_000})
	c := NewClient(t, server.URL(), "")
	if got := c.NC.MaxPayload(); got != 100_000 {
		t.Errorf("max payload %d", got)
	}
	_, err := c.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Send("s.1", "before", nil)
	server.Kill()
	if server.Running() {
		t.Error("it still runs after a kill")
	}
	server.Start()
	Until(t, Limit, "the client publishes again", func(ctx context.Context) error {
		_, err := c.TrySend(ctx, 5*time.Second, "s.2", "after", nil)
		return err
	})
	all, err := stored.Read(t.Context(), c.JS, "S", 1)
	if err != nil || len(all) < 2 || string(all[0].Data) != "before" || string(all[1].Data) != "after" {
		t.Errorf("read %v, %v", all, err)
	}
	if rest, err := stored.Read(t.Context(), c.JS, "S", all[len(all)-1].Seq+1); err != nil || len(rest) != 0 {
		t.Errorf("beyond the end: %v, %v", rest, err)
	}
}

func TestNATSStandsStill(t *testing.T) {
	server := StartNATS(t, NATSOptions{})
	nc := Connect(t, server.URL())
	server.Stop()
	if err := nc.FlushTimeout(200 * time.Millisecond); err == nil {
		t.Error("a server that stands still answers")
	}
	server.Continue()
	if err := nc.FlushTimeout(Limit); err != nil {
		t.Error(err)
	}
}

func TestRedisPersistence(t *testing.T) {
	for _, persistent := range []bool{true, false} {
		t.Run(fmt.Sprint(persistent), func(t *testing.T) {
			t.Parallel()
			server := StartRedis(t, RedisOptions{Persistent: persistent})
			client := server.Client()
			if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			server.Kill()
			server.Start()
			n, err := client.Exists(t.Context(), "k").Result()
			if err != nil { // the first connection of the pool may be closed already
				n, err = client.Exists(t.Context(), "k").Result()
			}
			if err != nil || (n == 1) != persistent {
				t.Errorf("exists %d, %v", n, err)
			}
		})
	}
}

func TestRedisSnapshot(t *testing.T) {
	server := StartRedis(t, RedisOptions{})
	set := func(v string) {
		t.Helper()
		if err := server.Client().Set(t.Context(), "k", v, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("old")
	snapshot := server.Snapshot()
	set("new")
	server.Restore(snapshot)
	if got := server.Client().Get(t.Context(), "k").Val(); got != "old" {
		t.Errorf("got %q", got)
	}
}

func TestTerminateTellsTheExitCode(t *testing.T) {
	if code := StartRedis(t, RedisOptions{}).Terminate(); code != 0 {
		t.Errorf("code %d", code)
	}
}

func TestPollGivesUp(t *testing.T) {
	err := poll.Until(t.Context(), 30*time.Millisecond, func(context.Context) error { return io.ErrUnexpectedEOF })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// TestPollWaitsForWhatGetsOn: the limit counts from when the error changed last, and a wait ends all the same.
func TestPollWaitsForWhatGetsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for steps, want := range map[int]time.Duration{20: 20 * time.Second, 1000: 30 * time.Second} {
			began := time.Now()
			err := poll.Until(t.Context(), 10*time.Second, func(context.Context) error {
				if at := int(time.Since(began).Seconds()); at < steps {
					return fmt.Errorf("it is at %d", at)
				}
				return nil
			})
			if took := time.Since(began).Round(time.Second); took != want || (err == nil) != (steps == 20) {
				t.Errorf("%d steps took %v (%v), want %v", steps, took, err, want)
			}
		}
	})
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		p := FreePort(t)
		if seen[p] {
			t.Fatalf("port %d twice", p)
		}
		seen[p] = true
	}
}

// echo is a server that answers each text with the same text in upper case.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 100)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if _, err := io.WriteString(c, strings.ToUpper(string(b[:n]))); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// exchange sends a text and reads the answer within a time.
func exchange(c net.Conn, text string, within time.Duration) (string, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	return string(b[:n]), err
}

func TestProxy(t *testing.T) {
	const soon, never = Limit, 100 * time.Millisecond
	timeout := func(err error) bool { var e net.Error; return errors.As(err, &e) && e.Timeout() }
	for name, test := range map[string]func(*testing.T, *Proxy, net.Conn){
		"passes": func(t *testing.T, _ *Proxy, c net.Conn) {
			if got, err := exchange(c, "hello", soon); got != "HELLO" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		},
		"cuts": func(t *testing.T, p *Proxy, c net.Conn) {
			_, _ = exchange(c, "hello", soon)
			p.Cut()
			if got, err := exchange(c, "hello", soon); err == nil || timeout(err) {
				t.Errorf("got %q, %v", got, err)
			}
		},
		"is down and up": func(t *testing.T, p *Proxy, c net.Conn) {
			_, _ = exchange(c, "hello", soon)
			p.Down()
			if got, err := exchange(dial(t, p), "hello", soon); err == nil || timeout(err) {
				t.Errorf("down: got %q, %v", got, err)
			}
			if p.Refused() != 1 {
				t.Errorf("refused %d", p.Refused())
			}
			p.Up()
			if got, err := exchange(dial(t, p), "hello", soon); got != "HELLO" || err != nil {
				t.Errorf("up: got %q, %v", got, err)
			}
		},
		"delays": func(t *testing.T, p *Proxy, c net.Conn) {
			p.Delay(ToClient, 50*time.Millisecond)
			began := time.Now()
			if got, err := exchange(c, "hello", soon); got != "HELLO" || err != nil ||
				time.Since(began) < 50*time.Millisecond {
				t.Errorf("got %q, %v after %v", got, err, time.Since(began))
			}
		},
		"holds and releases": func(t *testing.T, p *Proxy, c net.Conn) {
			for _, way := range []Direction{ToServer, ToClient} {
				p.Hold(way)
				if got, err := exchange(c, "hello", never); !timeout(err) {
					t.Errorf("held: got %q, %v", got, err)
				}
				p.Release()
				if got, err := exchange(c, "", soon); got != "HELLO" || err != nil {
					t.Errorf("released: got %q, %v", got, err)
				}
			}
		},
		"cuts a reply": func(t *testing.T, p *Proxy, c net.Conn) {
			sprung := p.CutReply(func(b []byte) bool { return strings.Contains(string(b), "commit") }, 3)
			if got, err := exchange(c, "read", soon); got != "READ" || err != nil {
				t.Errorf("another request: got %q, %v", got, err)
			}
			if got, err := exchange(c, "commit", soon); got != "COM" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
			<-sprung
			if got, err := exchange(c, "more", soon); err == nil || timeout(err) {
				t.Errorf("after: got %q, %v", got, err)
			}
			if got, err := exchange(dial(t, p), "commit", soon); got != "COMMIT" || err != nil {
				t.Errorf("it cuts once: got %q, %v", got, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := NewProxy(t, echo(t))
			test(t, p, dial(t, p))
		})
	}
}

func dial(t *testing.T, p *Proxy) net.Conn {
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

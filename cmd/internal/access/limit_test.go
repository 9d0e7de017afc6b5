package access

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneTokenLeavesHalf: one token alone gets at most half of a limit, the next one half of the rest, and so on.
func TestOneTokenLeavesHalf(t *testing.T) {
	l := NewLimit("imports", "imports", 16)
	for token, want := range []int{8, 4, 2, 1, 1, 0} {
		client, got := ClientOf(string(rune('a'+token))), 0
		for l.Take(client, 1) == nil {
			got++
		}
		if got != want {
			t.Errorf("token %d has %d, want %d", token, got, want)
		}
		var p *Problem
		if err := l.Take(client, 1); !errors.As(err, &p) || p.Status != 503 || p.Code != "too-many-imports" {
			t.Errorf("token %d: %v", token, err)
		}
	}
	l.Give(ClientOf("a"), 8)
	if err := l.Take(ClientOf("f"), 4); err != nil {
		t.Error(err)
	}
	if err := l.Take(ClientOf("f"), 1); err == nil {
		t.Error("it takes more than it leaves")
	}
}

// TestNoTokens: clients that need no token share all.
func TestNoTokens(t *testing.T) {
	l := NewLimit("reads", "reads", 2)
	if err := errors.Join(l.Take(Client{}, 1), l.Take(Client{}, 1)); err != nil {
		t.Error(err)
	}
	if l.Take(Client{}, 1) == nil {
		t.Error("it has more than there are")
	}
}

// TestHold: a request gives back all that it has taken, and what it could not take was not taken.
func TestHold(t *testing.T) {
	bytes, slots := NewLimit("bytes", "bytes", 1<<20), NewLimit("reads", "reads", 1)
	h := NewHold(Client{}, bytes)
	if err := errors.Join(h.Enter(slots), h.Bytes(1<<19), h.Bytes(1<<18)); err != nil {
		t.Fatal(err)
	}
	if h.Bytes(1<<21) == nil || bytes.used != 1<<18 || slots.used != 1 {
		t.Errorf("%d bytes, %d slots", bytes.used, slots.used)
	}
	got, err := io.ReadAll(h.Body(io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<19)))))
	if err != nil || len(got) != 1<<19 || bytes.used != 1<<19 {
		t.Errorf("%d bytes have come, and it holds %d: %v", len(got), bytes.used, err)
	}
	if _, err := io.ReadAll(h.Body(io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<21))))); err == nil {
		t.Error("a body larger than the limit has come")
	}
	refused := NewHold(Client{}, bytes)
	if refused.Enter(slots) == nil {
		t.Error("two requests have the only slot")
	}
	if refused.Leave(); slots.used != 1 {
		t.Errorf("after a request without a slot has left, %d slots are taken", slots.used)
	}
	h.Leave()
	h.Leave()
	if bytes.used != 0 || slots.used != 0 || len(bytes.by) != 0 || len(slots.by) != 0 {
		t.Errorf("%d bytes, %d slots, %v, %v", bytes.used, slots.used, bytes.by, slots.by)
	}
}

// slow is a client that takes each piece after a time.
type slow struct {
	header   http.Header
	takes    time.Duration
	deadline time.Time
	taken    int
}

func (s *slow) Header() http.Header                { return s.header }
func (s *slow) WriteHeader(int)                    {}
func (s *slow) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }

func (s *slow) Write(b []byte) (int, error) {
	end := time.Now().Add(s.takes)
	if end.After(s.deadline) {
		time.Sleep(time.Until(s.deadline))
		return 0, io.ErrShortWrite
	}
	time.Sleep(time.Until(end))
	s.taken += len(b)
	return len(b), nil
}

// TestSend: a client that takes each piece in time gets all, and another loses its connection
// after stall or whole.
func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			takes, ends time.Duration
			all         bool
		}{{time.Second, 10 * time.Second, true}, {stall + 1, stall, false}, {4 * time.Second, whole, false}} {
			h, w, began := NewHold(Client{}, NewLimit("bytes", "bytes", 1<<20)), &slow{header: http.Header{},
				takes: c.takes}, time.Now()
			if err := h.Send(w, 200, make([]byte, 10*piece)); err != nil {
				t.Fatal(err)
			}
			if got := time.Since(began); got != c.ends || w.taken == 10*piece != c.all {
				t.Errorf("%s for a piece: it took %d bytes in %s", c.takes, w.taken, got)
			}
		}
		h := NewHold(Client{}, NewLimit("bytes", "bytes", piece))
		if w := (&slow{header: http.Header{}}); h.Send(w, 200, make([]byte, piece+1)) == nil || w.taken > 0 {
			t.Error("it sends more than it may hold")
		}
	})
}

// TestStatusOfSend: an answer has its status, whether it is sent at once or in pieces.
func TestStatusOfSend(t *testing.T) {
	for _, size := range []int{1, piece + 1} {
		w := httptest.NewRecorder()
		h := NewHold(Client{}, NewLimit("bytes", "bytes", 1<<20))
		if err := h.Send(w, 404, make([]byte, size)); err != nil || w.Code != 404 || w.Body.Len() != size {
			t.Errorf("%d bytes: status %d with %d bytes, %v", size, w.Code, w.Body.Len(), err)
		}
	}
}

// TestWait: a request gets what others give back, in the order in which requests came, and is refused after a second.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimit("bytes", "bytes", 64)
		first, second, third := NewHold(Client{}, l), NewHold(Client{}, l), NewHold(Client{}, l)
		if err := first.Bytes(64); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var got []string
		wait := func(name string, h *Hold) {
			if err := h.Expect(t.Context(), 1<<20); err != nil { // a sixteenth of all: 4
				name = "no " + name
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, name)
		}
		go wait("second", second)
		synctest.Wait()
		go wait("third", third)
		synctest.Wait()
		if err := first.Bytes(60); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		for time.Since(began) < waitWithin {
			time.Sleep(waitWithin / 4)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if want := "second,no third"; strings.Join(got, ",") != want || l.Used() != 64 || l.waiting.Len() != 0 {
			t.Errorf("%v, and %d are taken", got, l.Used())
		}
		first.Leave()
		second.Leave()
		third.Leave()
		if l.Used() != 0 || len(l.by) != 0 {
			t.Errorf("%d are taken, by %v", l.Used(), l.by)
		}
	})
}

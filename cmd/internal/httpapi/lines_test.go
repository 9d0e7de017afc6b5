package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

// TestOrder: outcomes that come in any order leave in that of the lines, and no line is read
// while there is no room.
func TestOrder(t *testing.T) {
	const lines, most = 5000, 64
	o := newOrder(most)
	var pending sync.WaitGroup
	go func() {
		for n := range lines {
			tag, ok := o.add(n+1, fmt.Sprint(n))
			if !ok {
				t.Error("there is no room any more")
				return
			}
			pending.Go(func() {
				for range rand.IntN(100) {
				}
				o.set(tag, func(line int, id string) []byte { return fmt.Appendf(nil, "%d %s\n", line, id) })
			})
		}
		o.end()
	}()
	var got, want strings.Builder
	for more := true; more; {
		var b []byte
		b, more = o.take(nil, 100)
		got.Write(b)
	}
	for n := range lines {
		fmt.Fprintf(&want, "%d %d\n", n+1, n)
	}
	pending.Wait()
	if got.String() != want.String() {
		t.Error("the outcomes are not in the order of the lines")
	}
	o.giveUp()
	if _, ok := o.add(1, "x"); ok {
		t.Error("a line was taken that nobody will answer")
	}
	if b, more := o.take(nil, 1); more || len(b) > 0 {
		t.Errorf("%q, and more: %v", b, more)
	}
}

func FuzzOutcomeLine(f *testing.F) {
	f.Add(1, "id", "a <text> \" \u2028")
	f.Fuzz(func(t *testing.T, line int, id, text string) {
		b := outcomeLine(line, id, access.NewProblem(503, access.Unavailable, "%s", text))
		var o struct {
			Status int
			Error  *string
		}
		if err := json.Unmarshal(b, &o); err != nil || o.Status != 503 || o.Error == nil ||
			bytes.Count(b, []byte("\n")) != 1 {
			t.Errorf("%s: %v", b, err)
		}
	})
}

// TestStalledBody: a body of which nothing has come in time ends with 408, whatever the error of
// the connection has around that of its deadline.
func TestStalledBody(t *testing.T) {
	stalled := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	req := &request{Request: &http.Request{Body: io.NopCloser(iotest.ErrReader(stalled))}}
	r := reader{&importing{rc: http.NewResponseController(connection{}), r: req}, t.Context()}
	_, err := r.Read(make([]byte, 1))
	if p := (*access.Problem)(nil); !errors.As(err, &p) || p.Status != http.StatusRequestTimeout {
		t.Errorf("got %v, want a problem with the status 408", err)
	}
}

// connection is one whose deadlines can be set.
type connection struct{ http.ResponseWriter }

func (connection) SetReadDeadline(time.Time) error { return nil }

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// printEvery is how often the demo prints a line.
const printEvery = 3 * time.Second

// tally counts what has happened since the last line.
type tally struct {
	mu       sync.Mutex
	written  int
	rejected int
	failed   error // the last write that had no outcome
	late     []time.Duration
}

// wrote counts a write that ended with err.
func (s *tally) wrote(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.written++
	case errors.Is(err, client.ErrRejected):
		s.rejected++
	default:
		s.failed = err
	}
}

// watch counts the expiry events, and how late each has come, until ctx is done.
func (s *tally) watch(ctx context.Context, c *client.Client) error {
	return c.Watch(ctx, client.WatchOptions{}, func(n client.Notification) error {
		late := time.Since(time.UnixMilli(int64(n.Expired.ExpiredAt)))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.late = append(s.late, late)
		return nil
	})
}

// print prints a line again and again, until ctx is done.
func (s *tally) print(ctx context.Context, c *client.Client, out io.Writer) error {
	again := time.NewTicker(printEvery)
	defer again.Stop()
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		if _, err := fmt.Fprintln(out, s.line(live(ctx, c))); err != nil {
			return err
		}
	}
}

// line tells what has happened, and begins to count anew.
func (s *tally) line(live string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := []string{
		strconv.Itoa(s.written) + " written", strconv.Itoa(s.rejected) + " rejected", strconv.Itoa(len(s.late)) + " expired",
	}
	if len(s.late) > 0 {
		slices.Sort(s.late)
		parts[2] += fmt.Sprintf(" (half of the events at most %s late, all at most %s)", milliseconds(s.late[len(s.late)/2]), milliseconds(s.late[len(s.late)-1]))
	}
	if live != "" {
		parts = append(parts, live+" live")
	}
	if s.failed != nil {
		parts = append(parts, "failed: "+s.failed.Error())
	}
	s.written, s.rejected, s.failed, s.late = 0, 0, nil, s.late[:0]
	return time.Now().Format(time.TimeOnly) + "  " + strings.Join(parts, ", ")
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
}

// live is the number of documents; "" if it is not known.
func live(ctx context.Context, c *client.Client) string {
	reply, err := c.Collections(ctx, wire.CollectionsRequest{})
	if err != nil {
		return ""
	}
	var n int64
	for _, collection := range reply.Collections {
		n += collection.Live
	}
	return strconv.FormatInt(n, 10)
}

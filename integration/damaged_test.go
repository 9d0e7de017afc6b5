package integration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natscluster"
	"github.com/seed18712806/lapse/sink/wire"
)

// names waits until /readyz, the metrics and the log name a problem with a reason.
func names(t *testing.T, l *harness.Lapse, reason string) {
	t.Helper()
	unready(t, l, reason)
	harness.Until(t, harness.Limit, "the metrics and the log have a problem", func(context.Context) error {
		metrics, err := l.MetricsNow()
		if err == nil && !regexp.MustCompile(`lapse_problem\{[^}]*\} 1\n`).MatchString(metrics) {
			err = errors.New("the metrics have none")
		}
		if !regexp.MustCompile(`msg="there is a problem" problem=.*` + regexp.QuoteMeta(reason)).MatchString(l.Log()) {
			err = errors.Join(err, errors.New("the log has none"))
		}
		return err
	})
}

// lastExpiry is the sequence of the last event of an expiry in the stream of events.
func (w *world) lastExpiry() (seq uint64) {
	w.t.Helper()
	for _, e := range w.Events() {
		if strings.HasPrefix(e.Subject, string(w.Prefix)+".expired.") {
			seq = e.Seq
		}
	}
	return seq
}

// TestG12_ABitOfTheOnlyServer: a bit of a message flips in a file of the only nats-server, in the log or in the stream
// of events, and then Redis is lost. nats-server leaves such a message out without a word. lapse names the problem,
// and applies and publishes nothing that follows from the message being absent. It goes on once the bit is back.
//
// It fails if lapse takes a message that the server leaves out for one that was never there: the write is lost, or the
// event comes twice.
func TestG12_ABitOfTheOnlyServer(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"log", "events"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := external(t, harness.RedisOptions{})
			w.Configure("c", `{"defaultTtl":-1}`)
			for i := range 20 {
				w.Want(201, wire.Upsert, "c", fmt.Sprint(i), `{}`)
			}
			o := w.Want(201, wire.Upsert, "c", "late", `{"ttl":1}`)
			w.ExpiryOf("c", "late", o.Etag, harness.Limit)
			w.lapse.Kill()
			stream, seq := w.Prefix.LogStream(), uint64(10)
			if what == "events" {
				stream, seq = w.Prefix.EventsStream(), w.lastExpiry()
			}
			w.nats.Terminate()
			natscluster.FlipBit(t, w.nats, stream, seq)
			w.nats.Start()
			if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			w.lapse.Launch()
			names(t, w.lapse, fmt.Sprintf("message %d", seq))
			w.nats.Terminate()
			natscluster.FlipBit(t, w.nats, stream, seq)
			w.nats.Start()
			w.lapse.Ready()
			w.verify()
		})
	}
}

package serve

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// malformed counts messages whose headers cannot be read. It logs the first one alone: any client can send as many as
// it likes.
type malformed struct {
	prometheus.Counter
	once sync.Once
}

func newMalformed() *malformed {
	return &malformed{Counter: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "lapse_malformed_headers_total", Help: "Messages from NATS that were dropped because their headers cannot " +
			"be read.",
	})}
}

// note reports whether an error of a connection is about such a message.
func (m *malformed) note(log *slog.Logger, err error, subject string) bool {
	if m == nil || !errors.Is(err, nats.ErrBadHeaderMsg) {
		return false
	}
	m.Inc()
	m.once.Do(func() {
		log.Warn("a client sends messages whose headers cannot be read: they are dropped, and from here on only counted "+
			"(lapse_malformed_headers_total)",
			slog.String("subject", subject))
	})
	return true
}

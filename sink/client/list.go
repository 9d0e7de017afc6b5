package client

import (
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// ListOption selects documents of a list. What lapse does not allow is an error of the list's first
// page.
type ListOption func(*wire.ListRequest)

// ByDeadline lists the documents that will expire, by their deadlines, and by their ids where these
// are the same. It does not go with [WithPrefix].
func ByDeadline() ListOption {
	return func(r *wire.ListRequest) { r.Order = wire.ByDeadline }
}

// ExpiringUntil is [ByDeadline] for the documents that will expire by an instant.
func ExpiringUntil(at time.Time) ListOption {
	return func(r *wire.ListRequest) {
		until := wire.Time(at.UnixMilli())
		r.Order, r.Until = wire.ByDeadline, &until
	}
}

// ExpiringWithin is [ByDeadline] for the documents that will expire within a time from the first page
// on, from a millisecond to 2147483647 s. It does not go with [ExpiringUntil].
func ExpiringWithin(d time.Duration) ListOption {
	return func(r *wire.ListRequest) { r.Order, r.Within = wire.ByDeadline, d.String() }
}

// WithPrefix lists the documents whose ids begin with a text. lapse looks at all ids for it.
func WithPrefix(prefix string) ListOption {
	return func(r *wire.ListRequest) { r.Prefix = prefix }
}

package sink

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// QueryOptions ask for a page of a query.
type QueryOptions struct {
	Limit    int // as in ListOptions
	MaxBytes int // as in ListOptions
	// Continuation is that of the page before. What of the options below is left out is as it was for that page, and
	// nothing of it may be another.
	Continuation string
	Where        []entries.Condition
	Order        entries.Order
	Until        *wire.Time
	Within       time.Duration
	Count        bool // count the documents, and return none
	Scan         bool // examine all documents where no index serves the query
}

// Dear reports whether the query may examine many more documents than it returns.
func (o QueryOptions) Dear() bool {
	return o.Scan || o.Count || len(o.Where) > 1 || o.Order.ByDeadline && len(o.Where) > 0
}

// QueryPage is a page of a query. The last page has no continuation.
type QueryPage struct {
	Documents    []Document
	Count        int64 // documents of this page, if they were counted
	Examined     int64 // entries or documents that were examined for this page
	Continuation string
}

// Query reads the live documents of a collection for which all conditions hold.
func (r *Reader) Query(ctx context.Context, collection string, opts QueryOptions) (QueryPage, error) {
	panic("not built yet")
}

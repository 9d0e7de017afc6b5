package sink

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/wire"
)

// Errors of a Reader, to be told apart with errors.Is. Besides, a malformed
// collection or id is a wire.ErrInvalidName, and an error of Redis is passed on.
var (
	// ErrNotFound: there is no such document, or it is expired.
	ErrNotFound = errors.New("document not found")
	// ErrUnavailable: the partition is being rebuilt or was never initialised,
	// or the index that the answer needs is being built. Try again later.
	ErrUnavailable = errors.New("not available")
	// ErrInvalidRequest: a limit, a continuation or a forecast is out of range.
	ErrInvalidRequest = errors.New("invalid request")
)

// Document is a live document as it was read.
type Document struct {
	ID        string
	Etag      wire.Etag
	Ts        wire.Time
	ExpiresAt *wire.Time // nil if it never expires
	Body      []byte
}

// Reader reads documents. It is safe for concurrent use.
type Reader struct{}

// ReaderOptions say what a Reader reads.
type ReaderOptions struct {
	Prefix     wire.Prefix // wire.DefaultPrefix if empty
	Partitions int         // DefaultPartitions if 0; must be what the log was created with
}

// NewReader makes a Reader on a Redis (or Redis Cluster) that a lapse processor
// writes to.
func NewReader(client redis.UniversalClient, opts ReaderOptions) (*Reader, error) {
	return nil, errors.New("skeleton")
}

// Get reads one document.
func (r *Reader) Get(ctx context.Context, collection, id string) (Document, error) {
	return Document{}, errors.New("skeleton")
}

// GetMany reads many documents; those that are not there are left out.
func (r *Reader) GetMany(ctx context.Context, collection string, ids []string) ([]Document, error) {
	return nil, errors.New("skeleton")
}

// ListOptions ask for a page.
type ListOptions struct {
	Limit        int    // 1 to wire.MaxListLimit; wire.DefaultListLimit if 0
	MaxBytes     int    // end the page before it holds more than this (but hold one document); no limit if 0
	Continuation string // of the page before
}

// Page is a part of a collection. Without a continuation it is the last.
type Page struct {
	Documents    []Document
	Continuation string
}

// List reads a collection in pages, in no particular order.
func (r *Reader) List(ctx context.Context, collection string, opts ListOptions) (Page, error) {
	return Page{}, errors.New("skeleton")
}

// Count counts a collection's documents.
func (r *Reader) Count(ctx context.Context, collection string) (wire.CountReply, error) {
	return wire.CountReply{}, errors.New("skeleton")
}

// Forecast counts the documents that will expire within a time, in buckets.
// Zero values are wire.DefaultBuckets and wire.DefaultWithin.
func (r *Reader) Forecast(ctx context.Context, collection string, buckets int, within time.Duration) (wire.ForecastReply, error) {
	return wire.ForecastReply{}, errors.New("skeleton")
}

// Config reads a collection's configuration.
func (r *Reader) Config(ctx context.Context, collection string) (wire.Config, error) {
	return wire.Config{}, errors.New("skeleton")
}

package service_test

import (
	"context"
	"errors"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// fake is a reader with functions of the test. A call without a function panics.
type fake struct {
	get      func(ctx context.Context, collection, id string) (sink.Document, error)
	list     func(ctx context.Context, collection string, opts sink.ListOptions) (sink.Page, error)
	query    func(ctx context.Context, collection string, opts sink.QueryOptions) (sink.QueryPage, error)
	count    func(ctx context.Context, collection string) (wire.CountReply, error)
	forecast func(ctx context.Context, collection string, opts sink.ForecastOptions) (wire.ForecastReply, error)
	config   func(ctx context.Context, collection string) (wire.Config, error)

	collections func(ctx context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error)
}

var errUnexpected = errors.New("the reader was asked, and should not have been")

func (f fake) Get(ctx context.Context, collection, id string) (sink.Document, error) {
	if f.get == nil {
		return sink.Document{}, errUnexpected
	}
	return f.get(ctx, collection, id)
}

func (f fake) List(ctx context.Context, collection string, opts sink.ListOptions) (sink.Page, error) {
	if f.list == nil {
		return sink.Page{}, errUnexpected
	}
	return f.list(ctx, collection, opts)
}

func (f fake) Query(ctx context.Context, collection string, opts sink.QueryOptions) (sink.QueryPage, error) {
	if f.query == nil {
		return sink.QueryPage{}, errUnexpected
	}
	return f.query(ctx, collection, opts)
}

func (f fake) Count(ctx context.Context, collection string) (wire.CountReply, error) {
	if f.count == nil {
		return wire.CountReply{}, errUnexpected
	}
	return f.count(ctx, collection)
}

func (f fake) Forecast(ctx context.Context, collection string, opts sink.ForecastOptions) (wire.ForecastReply, error) {
	if f.forecast == nil {
		return wire.ForecastReply{}, errUnexpected
	}
	return f.forecast(ctx, collection, opts)
}

func (f fake) Config(ctx context.Context, collection string) (wire.Config, error) {
	if f.config == nil {
		return wire.Config{}, errUnexpected
	}
	return f.config(ctx, collection)
}

func (f fake) Collections(ctx context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error) {
	if f.collections == nil {
		return wire.CollectionsReply{}, errUnexpected
	}
	return f.collections(ctx, opts)
}

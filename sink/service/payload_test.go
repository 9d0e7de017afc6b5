package service_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestTwoThatDoNotFit: where the maximum payload has room for one of two documents, or of two collections, the answer
// is a page of one. The last one comes alone, whatever the reader's limit was.
//
// It fails if the answer is an error, or if the service asks for a page without a limit, which never fits.
func TestTwoThatDoNotFit(t *testing.T) {
	const size = 40 << 10 // of 64
	large := strings.Repeat("x", size)
	documents := []sink.Document{{ID: "a", Etag: 1, Ts: 1, Body: []byte(`{"x":"` + large + `"}`)}}
	documents = append(documents, sink.Document{ID: "b", Etag: 2, Ts: 1, Body: documents[0].Body})
	all := []wire.Collection{{Name: "a", Indexes: []string{large}}, {Name: "b", Indexes: []string{large}}}
	var pages int
	cut := func(limit int) (n int, continuation string) {
		if pages++; pages > 2 {
			t.Errorf("the reader was asked %d times, the last time for %d", pages, limit)
			return 1, "" // ends it
		}
		if limit == 1 {
			return 1, "next"
		}
		return 2, ""
	}
	_, nc := start(t, fake{
		list: func(_ context.Context, _ string, opts sink.ListOptions) (sink.Page, error) {
			n, next := cut(opts.Limit)
			return sink.Page{Documents: documents[:n], Continuation: next}, nil
		},
		query: func(_ context.Context, _ string, opts sink.QueryOptions) (sink.QueryPage, error) {
			n, next := cut(opts.Limit)
			return sink.QueryPage{Documents: documents[:n], Continuation: next}, nil
		},
		collections: func(_ context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error) {
			n, next := cut(opts.Limit)
			return wire.CollectionsReply{Collections: all[:n], Continuation: next}, nil
		},
	}, service.Options{})
	for _, subject := range []string{"list.orders", "query.orders", "collections"} {
		pages = 0
		m := request(t, nc, "lapse.read."+subject, "")
		var page struct {
			Documents, Collections []json.RawMessage
			Continuation           string
		}
		if err := json.Unmarshal(m.Data, &page); err != nil {
			t.Errorf("%s: %v, %v", subject, err, m.Header)
			continue
		}
		if len(page.Documents)+len(page.Collections) != 1 || page.Continuation != "next" {
			t.Errorf("%s: a page of %d, %q behind it", subject, len(page.Documents)+len(page.Collections), page.Continuation)
		}
	}
}

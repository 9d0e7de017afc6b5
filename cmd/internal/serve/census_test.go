package serve

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// pages answers with one page after the other, and then with an error.
type pages []wire.CollectionsReply

func (p *pages) Collections(_ context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error) {
	if len(*p) == 0 {
		return wire.CollectionsReply{}, errors.New("Redis is not available")
	}
	page := (*p)[0]
	*p = (*p)[1:]
	return page, nil
}

func collection(live, expired int64) wire.Collection {
	return wire.Collection{Live: live, Expired: expired}
}

var samples = regexp.MustCompile(`(?m)^lapse_.*$`)

// The census adds up all pages. After a count that fails, or that is
// not this process's to make, there are no metrics: an old count would be wrong.
//
// It fails if a failed count leaves the counts of the one before.
func TestCensus(t *testing.T) {
	const counted = "lapse_collections 3\nlapse_documents{state=\"expired\"} 3\nlapse_documents{state=\"live\"} 111"
	whole := pages{
		{Collections: []wire.Collection{collection(1, 2), collection(10, 0)}, Continuation: "more"},
		{Collections: []wire.Collection{collection(100, 1)}},
	}
	for name, c := range map[string]struct {
		then pages
		owns bool
		want string
	}{
		"again": {whole, true, counted},
		"no collection": {pages{{}}, true, "lapse_collections 0\nlapse_documents{state=\"expired\"} " +
			"0\nlapse_documents{state=\"live\"} 0"},
		"an error":        {nil, true, ""},
		"half of it":      {whole[:1], true, ""},
		"a standby by it": {whole, false, ""},
	} {
		reader := append(pages{}, whole...)
		census, metrics := newCensus(&reader), prometheus.NewRegistry()
		metrics.MustRegister(census)
		scrape := func() string {
			answer := httptest.NewRecorder()
			promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			return strings.Join(samples.FindAllString(answer.Body.String(), -1), "\n")
		}
		if got := scrape(); got != "" {
			t.Errorf("%s: before the first count: %s", name, got)
		}
		census.runOnce(t.Context(), true)
		if got := scrape(); got != counted {
			t.Errorf("%s: the first count is\n%s\nwant\n%s", name, got, counted)
		}
		reader = append(pages{}, c.then...)
		census.runOnce(t.Context(), c.owns)
		if got := scrape(); got != c.want {
			t.Errorf("%s: the second count is\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

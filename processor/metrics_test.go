package processor

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed18712806/lapse/sink/wire"
)

// scrape returns the metrics as Prometheus reads them.
func scrape(r *prometheus.Registry) string {
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	return answer.Body.String()
}

// TestG11_MetricsOfAnOwner: while the processor runs, its metrics count rejections by code,
// show the sizes of the streams and the memory of Redis, and show how long a document is due
// whose event cannot be published. When it has ended, they show neither backlog nor sizes,
// because the next owner reports its own.
//
// It fails if a former owner goes on reporting what it has seen last.
func TestG11_MetricsOfAnOwner(t *testing.T) {
	t.Parallel()
	bytes := int64(1 << 30)
	metrics := prometheus.NewRegistry()
	r := newRigOn(t, backends[1], Options{Metrics: metrics, LogMaxBytes: &bytes})
	if err := r.redis.ConfigSet(t.Context(), "maxmemory", "100mb").Err(); err != nil {
		t.Fatal(err)
	}
	p := r.start(nil)
	p.ready(t)
	shows := func(series ...string) {
		t.Helper()
		comes(t, fmt.Sprintf("the metrics show %q", series), func() error {
			text := scrape(metrics)
			for _, one := range series {
				if !strings.Contains(text, "\n"+one) {
					return fmt.Errorf("%q is not in:\n%s", one, text)
				}
			}
			return nil
		})
	}
	r.put("c", "a", `{}`)
	r.must(wire.StatusConflict, prefix.Write(wire.Create, "c", "a"), `{}`)
	r.must(wire.StatusBadRequest, prefix.Write(wire.Upsert, "c", "a"), `[]`)
	r.must(wire.StatusBadRequest, prefix.Write(wire.Upsert, "c", "a"), `1`)
	events, err := r.js.Stream(t.Context(), prefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	stored := events.CachedInfo().State.Msgs // the rejections, and a fence or more
	if stored < 3+1 {
		t.Errorf("%d events are stored", stored)
	}
	shows(
		`lapse_messages_rejected_total{code="400"} 2`, `lapse_messages_rejected_total{code="404"} 0`,
		`lapse_messages_rejected_total{code="409"} 1`,
		`lapse_stream_bytes{stream="LAPSE_LOG"} `, fmt.Sprintf(`lapse_stream_messages{stream="LAPSE_EVENTS"} %d`, stored),
		`lapse_stream_limit_bytes{discard="old",stream="LAPSE_LOG"} 1.073741824e+09`,
		`lapse_redis_memory_bytes `, `lapse_redis_memory_limit_bytes 1.048576e+08`,
	)
	state := keysOf(t, r, "lapse:{0.*:state")[0]
	if err := r.redis.Set(t.Context(), state, "of somebody else", 0).Err(); err != nil {
		t.Fatal(err)
	}
	shows("lapse_shard_failing 1")
	p.cancel()
	<-p.done
	text := scrape(metrics)
	if strings.Contains(text, "lapse_stream_bytes{") || strings.Contains(text, "lapse_redis_memory_bytes ") ||
		!strings.Contains(text, "lapse_shard_failing 0") {
		t.Errorf("after its end the processor reports what it saw before:\n%s", text)
	}
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG11_TwoProcessesWithDifferentRedis: two processes of one prefix have different Redis: servers, or each an
// embedded one of its own. The second is a named problem and answers no reads, so that all reads over NATS are answered
// by the first. Once the first has gone, the second goes on by itself.
//
// It fails if a process that is not the owner reads from a Redis of its own.
func TestG11_TwoProcessesWithDifferentRedis(t *testing.T) {
	t.Parallel()
	for name, redis := range map[string]func(t *testing.T) []string{
		"servers": func(t *testing.T) []string {
			return []string{"--redis", harness.StartRedis(t, harness.RedisOptions{}).URL()}
		},
		"embedded": func(*testing.T) []string { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nats := harness.StartNATS(t, harness.NATSOptions{})
			client := harness.NewClient(t, nats.URL(), "")
			start := func() *harness.Lapse {
				return harness.PrepareLapse(t, append([]string{"--nats", nats.URL()}, redis(t)...)...)
			}
			first, second := start(), start()
			first.Start()
			client.Configure("c", `{"defaultTtl":-1}`)
			client.Want(201, wire.Upsert, "c", "a", `{}`)
			second.Launch()
			unready(t, second, "another Redis: this process uses another Redis")
			reads := readers.ByService(client.NC, client.Prefix)
			for i := range 30 {
				if _, err := reads.Get(t.Context(), "c", "a"); err != nil {
					t.Fatalf("read %d: %v", i, err)
				}
			}
			if status := document(t, second); status != http.StatusServiceUnavailable {
				t.Errorf("HTTP of the second answers with %d, want 503", status)
			}
			if !strings.Contains(second.Metrics(), `lapse_problem{problem="another Redis"} 1`) {
				t.Error("the metrics of the second do not have the problem")
			}
			if err := first.ReadyNow(t.Context()); err != nil {
				t.Errorf("the first: %v", err)
			}
			first.Terminate()
			second.Ready()
			if !client.Found("c", "a") {
				t.Error("the second does not have the document that the log has")
			}
			if status := document(t, second); status != http.StatusOK {
				t.Errorf("HTTP of the second answers with %d, want 200", status)
			}
		})
	}
}

// document requests a document from a process by HTTP.
func document(t *testing.T, l *harness.Lapse) (status int) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.HTTP+
		"/v1/collections/c/documents/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// TestG7_AWipedRedisIsNotAnotherOne: two processes share a Redis that is wiped, again and again. It has another
// identity then, and neither is taken for one with another Redis.
func TestG7_AWipedRedisIsNotAnotherOne(t *testing.T) {
	t.Parallel()
	w, all := members(t, 2, 1)
	w.Want(201, wire.Upsert, "c", "a", `{}`)
	client := w.redis.Client()
	for range 3 {
		before := client.HGet(t.Context(), "lapse:identity", "id").Val()
		if err := client.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, harness.Limit, "Redis has another identity", func(ctx context.Context) error {
			if id := client.HGet(ctx, "lapse:identity", "id").Val(); id == "" || id == before {
				return fmt.Errorf("it is %q", id)
			}
			return nil
		})
		harness.Until(t, harness.Limit, "the document is back", func(context.Context) error {
			if !w.Found("c", "a") {
				return errors.New("it is not")
			}
			return nil
		})
		for _, m := range all {
			m.Ready()
		}
	}
	for _, m := range all {
		if strings.Contains(m.Log(), "another Redis") {
			t.Errorf("a process took the wiped Redis for another one:\n%s", m.Log())
		}
	}
	w.verify()
}

package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestSizeOfADocument: what a document takes in the log, in Redis and in the stream of events, for bodies of two sizes:
// the figures of "Size" in deploy/docs/scale.md.
//
// It fails if one takes much more or less than that page says.
func TestSizeOfADocument(t *testing.T) {
	t.Parallel()
	const documents = 20_000
	for _, body := range []int{100, 1000} {
		t.Run(fmt.Sprint(body, " bytes"), func(t *testing.T) {
			t.Parallel()
			w := external(t, harness.RedisOptions{})
			w.Configure("orders", `{"defaultTtl":-1}`)
			client := w.redis.Client()
			memory := func() float64 {
				info, err := client.InfoMap(t.Context(), "memory").Result()
				if err != nil {
					t.Fatal(err)
				}
				n, err := strconv.ParseFloat(info["Memory"]["used_memory"], 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			stream := func(name string) (messages uint64, bytes float64) {
				s, err := w.JS.Stream(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				state := s.CachedInfo().State
				return state.Msgs, float64(state.Bytes)
			}
			redisBefore := memory()
			_, logBefore := stream(w.Prefix.LogStream())
			text := `{"text":"` + strings.Repeat("x", body-len(`{"text":""}`)) + `"}`
			for i := range documents {
				w.SendLater(w.Prefix.Write(wire.Create, "orders", fmt.Sprintf("%08d", i)), text)
			}
			w.Flush()
			harness.Until(t, harness.Limit, "all documents are applied", func(ctx context.Context) error {
				n, err := w.reader.Count(ctx, "orders")
				if err == nil && n.Live != documents {
					err = fmt.Errorf("%d are", n.Live)
				}
				return err
			})
			_, logAfter := stream(w.Prefix.LogStream())
			redisAfter := memory()
			w.Configure("orders", `{"defaultTtl":1}`)
			harness.Until(t, harness.Limit, "each has its event", func(context.Context) error {
				if n, _ := stream(w.Prefix.EventsStream()); n < documents {
					return fmt.Errorf("%d have", n)
				}
				return nil
			})
			_, events := stream(w.Prefix.EventsStream())
			for _, size := range []struct {
				what         string
				bytes        float64
				atLeast, max float64 // beside the body
			}{
				{"the log", logAfter - logBefore, 50, 80},
				{"Redis", redisAfter - redisBefore, 160, 280},
				{"the stream of events", events, 540, 620},
			} {
				beside := size.bytes/documents - float64(body)
				t.Logf("a document of %d bytes takes %.0f bytes beside its body in %s", body, beside, size.what)
				if beside < size.atLeast || beside > size.max {
					t.Errorf("a document of %d bytes takes %.0f bytes beside its body in %s: deploy/docs/scale.md "+
						"says %.0f to %.0f",
						body, beside, size.what, size.atLeast, size.max)
				}
			}
		})
	}
}

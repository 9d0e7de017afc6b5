package integration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
)

// TestG7_DocumentsLostUnderLoad: Redis loses the documents of a collection under load, again and again. lapse publishes
// nothing that follows from the loss, finds it, and rebuilds the shard.
//
// It fails if lapse takes a lost document for one that does not exist: it would then reject
// writes that must take effect.
func TestG7_DocumentsLostUnderLoad(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	l := startLoad(t, w.Client, 78)
	client := w.redis.Client()
	r := rand.New(rand.NewPCG(78, 78))
	for range 8 {
		l.wait(t, 300)
		for i := range 3 {
			keys, err := client.Keys(t.Context(), fmt.Sprintf("%s:*docs:c%d", w.Prefix, i)).Result()
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) > 0 {
				if err := client.Del(t.Context(), keys[r.IntN(len(keys))]).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	harness.At(t, time.Now().Add(3*time.Second)) // lapse finds the last loss within one or two seconds
	l.end()
	w.lapse.Ready()
	w.verify()
}

package integration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
)

// The documents of a collection are lost under load, again and again: until that
// is noticed nothing is said by what is left, and then they are built anew.
//
// It fails if a document that was lost is taken for one that does not exist:
// writes to it are rejected then, though they take effect.
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
	harness.At(t, time.Now().Add(3*time.Second)) // the last loss is noticed within a second or two
	l.end()
	w.lapse.Ready()
	w.verify()
}

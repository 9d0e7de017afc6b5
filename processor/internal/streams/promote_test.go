package streams

import (
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// A region is superseded from its root on. A process that takes over there meanwhile asks the root first, and would
// take other streams that are superseded for ones that somebody has changed.
func TestSupersedeTheRootFirst(t *testing.T) {
	js := natstest.Connect(t, natstest.Options{JetStream: "domain: a"})
	for _, shards := range []int{1, 2} {
		o := options()
		o.Prefix, o.Shards = wire.Prefix([]string{"one", "two"}[shards-1]), shards
		for o.Shard = range shards {
			if _, err := Provision(t.Context(), js, o); err != nil {
				t.Fatal(err)
			}
		}
		origin, err := NewOrigin(js.Conn(), "a")
		if err != nil {
			t.Fatal(err)
		}
		const updated = "$JS.EVENT.ADVISORY.STREAM.UPDATED."
		heard, err := js.Conn().SubscribeSync(updated + "*")
		if err != nil {
			t.Fatal(err)
		}
		promotion := &Promotion{JS: js, Origin: origin, Opts: o}
		if err := promotion.supersedeAll(t.Context(), wire.Promotion{Domain: "b"}); err != nil {
			t.Fatal(err)
		}
		first, err := heard.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimPrefix(first.Subject, updated); got != o.Root() {
			t.Errorf("%d shards, %s is superseded first, want %s", shards, got, o.Root())
		}
		if _, err := RoleOf(t.Context(), js, o); err == nil || !strings.Contains(err.Error(), "another region was promoted") {
			t.Errorf("%d shards: the role is told with %v", shards, err)
		}
		if err := heard.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
}

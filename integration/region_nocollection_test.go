package integration

import (
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRegion_TheRuleOfTheCollections: lapse in the first region is started again with closed collections, while that of
// the follower is told that they are open. The follower decides as the first region did, before and after.
//
// It fails if the follower decides by its own flag, or by a rule that reaches it later than the messages.
func TestRegion_TheRuleOfTheCollections(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.a.Want(201, wire.Upsert, "c", "open", `{}`)
	r.follow(r.b, r.a)
	r.same()
	r.a.lapse.Terminate()
	r.a.lapse = r.lapseIn(r.a, harness.ClosedCollections)
	r.a.lapse.Start()
	r.a.Want(404, wire.Upsert, "c", "closed", `{}`)
	r.a.Configure("d", `{}`)
	r.a.Want(201, wire.Upsert, "d", "closed", `{}`)
	r.same()
}

package sink_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/child"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/harness/storetest"
)

func TestMain(m *testing.M) {
	// The thread that starts servers lives as long as the tests.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(child.Goroutine))
}

// ctx is for calls to a server that ends with the test.
var ctx = context.Background()

const far = storetest.Far

// rig adds to a storetest.Rig what these tests share.
type rig struct{ *storetest.Rig }

func newRig(t storetest.T, s redistest.Server, n int, watermark int64) *rig {
	t.Helper()
	r := &rig{storetest.New(t, s, n, watermark)}
	r.Open()
	return r
}

func wantErr(t storetest.T, err, want error, doing string) {
	t.Helper()
	storetest.WantErr(t, err, want, doing)
}

// onMiniredis reports whether a test runs on miniredis, which sorts a whole index for each script.
func onMiniredis(t *testing.T) bool { return strings.HasSuffix(t.Name(), "/miniredis") }

// check is rapid.Check. On miniredis it runs a fifth of the checks.
func check(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	few := onMiniredis(t)
	rapid.Check(t, func(t *rapid.T) {
		if few && rapid.SampledFrom([]int{0, 1, 2, 3, 4}).Draw(t, "one of five") > 0 {
			return
		}
		property(t)
	})
}

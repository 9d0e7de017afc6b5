package store_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

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
	return &rig{storetest.New(t, s, n, watermark)}
}

func wantErr(t storetest.T, err, want error, doing string) {
	t.Helper()
	storetest.WantErr(t, err, want, doing)
}

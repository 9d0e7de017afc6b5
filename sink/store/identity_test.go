package store_test

import (
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// The identity stays until Redis is wiped. Each prefix has its own.
func TestIdentity(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		identity := func(prefix string) string {
			t.Helper()
			id, err := store.Identity(t.Context(), s.Client, wire.Prefix(prefix))
			if err != nil || id == "" {
				t.Fatalf("%q, %v", id, err)
			}
			return id
		}
		first := identity("identity")
		if again := identity("identity"); again != first {
			t.Errorf("%q, then %q", first, again)
		}
		if other := identity("elsewhere"); other == first {
			t.Errorf("another prefix has the same: %q", other)
		}
		if err := s.Client.Del(t.Context(), "identity:identity").Err(); err != nil {
			t.Fatal(err)
		}
		if anew := identity("identity"); anew == first {
			t.Errorf("the same after a wipe: %q", anew)
		}
	})
}

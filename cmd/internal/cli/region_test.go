package cli_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestForgetFollower: a region forgets one that has followed it. The command says whether that was known.
func TestForgetFollower(t *testing.T) {
	s := newService(t)
	members, err := natstest.JetStream(t, s.nc).CreateKeyValue(t.Context(),
		jetstream.KeyValueConfig{Bucket: wire.DefaultPrefix.MembersBucket()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := members.Put(t.Context(), wire.FollowerKey("c"), nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"forgot the region \"c\"\n", "no region \"c\" is remembered\n"} {
		if stdout, stderr, code := s.run("forget-follower", "c"); stdout != want || code != 0 {
			t.Errorf("exit code %d, %q, want %q: %s", code, stdout, want, stderr)
		}
	}
}

// TestPlanOfAPromotionAsJSON: with --dry-run a program gets the plan as JSON, also that of a promotion that is refused.
func TestPlanOfAPromotionAsJSON(t *testing.T) {
	s := newService(t)
	stdout, stderr, code := s.run("promote", "--dry-run", "-o", "json")
	const want = `{"steps":null,"refused":["this region follows no other, so it is the first already"]}` + "\n"
	if !strings.HasPrefix(stdout, want) || code != 1 { // the error comes after it
		t.Errorf("exit code %d, %s, want %s: %s", code, stdout, want, stderr)
	}
}

package processor

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestCompareAgainLeavesNothing: a session that has ended leaves nothing at the connection of its process.
func TestCompareAgainLeavesNothing(t *testing.T) {
	natstest.LeavesNoListener(t, func(ended context.Context, nc *nats.Conn) {
		(&session{processor: &Processor{nc: nc}}).compareAgain(ended)
	})
}

// TestFollowsFromNowhere: a region whose servers have no JetStream domain does not follow another one. It says what to
// do, and makes nothing.
func TestFollowsFromNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p, err := New(r.nc, r.redis, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	var parts shard.Parts
	role := streams.Role{Region: wire.Region{Follows: "there"}, Mirror: true}
	err = p.session.follow(t.Context(), r.js, role, &parts)
	if err == nil || !strings.Contains(err.Error(), "has no JetStream domain: give it one") || p.session.follower != nil {
		t.Errorf("it follows: %v", err)
	}
}

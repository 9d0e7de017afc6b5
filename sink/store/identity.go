package store

import (
	"context"
	"crypto/rand"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

//go:embed identity.lua
var identitySource string

var identityScript = redis.NewScript(identitySource)

// Identity is what tells a Redis from all others: a random text, which lasts as long as the data
// of that Redis. The first process that asks makes it, also after a wipe. On a cluster one master
// has it, so it is not known while that one does not answer.
func Identity(ctx context.Context, client redis.UniversalClient, prefix wire.Prefix) (string, error) {
	id, err := identityScript.Run(ctx, client, []string{fmt.Sprintf("%s:identity", prefix)}, rand.Text()).Text()
	return id, layout.Foreign(err)
}

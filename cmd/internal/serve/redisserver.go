package serve

import (
	"fmt"

	"github.com/seed18712806/lapse/sink/embedded"
)

// startRedis starts a Redis in this process. It keeps everything in memory and forgets it
// at the end; the processor rebuilds it from the log.
func startRedis(address string) (*embedded.Server, error) {
	s, err := embedded.Start(address)
	if err != nil {
		return nil, fmt.Errorf("--redis-listen %s: %w", address, unwrapOp(err))
	}
	return s, nil
}

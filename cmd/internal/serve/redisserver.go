package serve

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// startRedis starts a Redis in this process. It keeps everything in memory and forgets it
// at the end; the processor rebuilds it from the log.
func startRedis(address string) (*miniredis.Miniredis, error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr(address); err != nil {
		return nil, fmt.Errorf("--redis-listen %s: %w", address, unwrapOp(err))
	}
	return m, nil
}

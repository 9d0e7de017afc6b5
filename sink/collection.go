package sink

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Config is what a partition knows of a collection's configuration.
type Config struct {
	History  ttlrules.History
	NoIndex  bool // indexing mode "none": TTL is off, and no index is kept
	Building bool // the index is being built, after a change from "none"
}

// Wire is the configuration as it is read from outside.
func (c Config) Wire() wire.Config {
	w := wire.Config{IndexingMode: wire.Consistent, IndexBuilding: c.Building}
	if c.NoIndex {
		w.IndexingMode = wire.NoIndex
	}
	if d := c.History.Current(); d != ttlrules.Off {
		n := int32(d)
		w.DefaultTTL = &n
	}
	return w
}

// storedConfig is a Config in Redis; an epoch is [since, seq, default].
type storedConfig struct {
	Epochs   [][3]int64 `json:"epochs"`
	NoIndex  bool       `json:"noIndex,omitempty"`
	Building bool       `json:"building,omitempty"`
}

func (c Config) encode() string {
	s := storedConfig{NoIndex: c.NoIndex, Building: c.Building, Epochs: [][3]int64{}}
	for _, e := range c.History {
		s.Epochs = append(s.Epochs, [3]int64{e.Since, int64(e.Seq), int64(e.Default)})
	}
	b, _ := json.Marshal(s) // numbers and booleans: cannot fail
	return string(b)
}

func decodeConfig(raw string) (Config, error) {
	if raw == "" {
		return Config{}, nil
	}
	var s storedConfig
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return Config{}, fmt.Errorf("a stored configuration is not one of lapse: %w", err)
	}
	c := Config{NoIndex: s.NoIndex, Building: s.Building}
	since := int64(math.MinInt64)
	for _, e := range s.Epochs {
		if e[0] < since || e[2] < -1 || e[2] > ttlrules.MaxSeconds {
			return Config{}, fmt.Errorf("a stored configuration is not one of lapse: epoch %v", e)
		}
		since = e[0]
		c.History = append(c.History, ttlrules.Epoch{Since: e[0], Seq: uint64(e[1]), Default: ttlrules.Default(e[2])})
	}
	return c, nil
}

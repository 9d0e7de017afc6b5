package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// statusWithin limits how long the page waits for NATS.
const statusWithin = 3 * time.Second

type systemData struct {
	Process string
	Role    string
	Status  *client.Status
	Missing string // why there is no status
	Figures Figures
}

// cache keeps what NATS has said last, so that many pages cost it no more than one.
type cache[T any] struct {
	read func(context.Context) (T, error)

	mu   sync.Mutex
	last T
	err  error
	at   time.Time
}

// get returns what was read a second ago at most.
func (c *cache[T]) get(ctx context.Context) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusWithin)
		defer cancel()
		c.last, c.err = c.read(ctx)
		c.at = time.Now()
	}
	return c.last, c.err
}

func systemPage(v *visit) error {
	role, _ := v.c.opts.Ready()
	data := systemData{Process: processName(), Role: role, Figures: v.c.figures.Now()}
	if s, err := v.c.statuses.get(v.r.Context()); err != nil {
		data.Missing = err.Error()
	} else {
		data.Status = &s
	}
	return v.show(http.StatusOK, "system", v.page("System", "system", data))
}

// Places are where bytes may be that should be gone, and for how long at most.
func (systemData) Places(r *wire.Retention) (places []place) {
	for _, name := range slices.Sorted(maps.Keys(r.Oldest)) {
		places = append(places, place{name, r.Oldest[name]})
	}
	return places
}

type place struct {
	Name    string
	Seconds float64
}

// Owns lists the shards of a process.
func (d systemData) Owns(process string) (shards []int) {
	for _, s := range d.Status.Shards {
		if s.Owner == process {
			shards = append(shards, s.Shard)
		}
	}
	slices.SortFunc(shards, cmp.Compare[int])
	return shards
}

// processName is the name of this process, as lapse status shows it.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

package console

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/console/figures"
	"github.com/seed18712806/lapse/sink/client/status"
	"github.com/seed18712806/lapse/sink/wire"
)

// statusWithin limits how long the page waits for NATS.
const statusWithin = 3 * time.Second

type systemData struct {
	Process string
	Role    string
	Status  *status.Status
	Missing string // why there is no status
	Figures figures.Figures
}

func systemPage(v *visit) error {
	role, _ := v.c.opts.Ready()
	data := systemData{Process: processName(), Role: role, Figures: v.c.figures.Now()}
	ctx, cancel := context.WithTimeout(v.r.Context(), statusWithin)
	defer cancel()
	if s, err := v.c.opts.Status(ctx); err != nil {
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

// Wanted is how many snapshots a shard should have: two of each partition.
func (systemData) Wanted(r *wire.Retention) int { return 2 * r.Partitions }

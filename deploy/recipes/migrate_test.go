package recipes_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

// Row is what another store has.
type Row struct {
	Key   string
	Value map[string]any
	Until time.Time // zero: never
}

// Example_migrate: rows of another store, with their deadlines, are written many at a time.
func Example_migrate() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	now := l.Now()
	rows := []Row{
		{"a", map[string]any{"item": "tea"}, now.Add(time.Hour)},
		{"b", map[string]any{"item": "cup"}, time.Time{}},
		{"c", map[string]any{"item": "pot"}, now.Add(-time.Hour)},
	}

	orders, err := client.Open[map[string]any](c, "orders")
	check(err)
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: client.Never})
	check(err)
	over := 0
	batch, err := orders.Batch(ctx, nil)
	check(err)
	for _, row := range rows {
		switch {
		case row.Until.IsZero():
			err = batch.Create(ctx, row.Key, row.Value)
		case row.Until.After(l.Now()):
			err = batch.Create(ctx, row.Key, row.Value, client.ExpiresAt(row.Until))
		default: // lapse refuses a deadline that is over
			over++
		}
		check(err)
	}
	check(batch.Close(ctx)) // the first error of a write

	n, err := orders.Count(ctx)
	check(err)
	fmt.Println("written:", n.Live, "over already:", over)
	for d, err := range orders.List(ctx, client.ByDeadline()) {
		check(err)
		fmt.Println(d.ID, "expires in", d.ExpiresAt.Sub(now).Round(time.Minute))
	}

	// Output:
	// written: 2 over already: 1
	// a expires in 1h0m0s
}

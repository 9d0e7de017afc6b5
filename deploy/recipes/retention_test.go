package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

// Example_retention: personal data is kept for 30 days, and not longer. The event proves that it has expired, and
// does not have it.
func Example_retention() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()

	const day = 24 * time.Hour
	visitors, err := client.Open[map[string]any](c, "visitors")
	check(err)
	_, err = visitors.Configure(ctx, client.Config{DefaultTTL: 30 * day, MaxTTL: 30 * day, NoEventBody: true})
	check(err)
	_, err = visitors.Create(ctx, "v1", map[string]any{"name": "Ada"})
	check(err)
	_, err = visitors.Create(ctx, "v2", map[string]any{"name": "Bo"}, client.TTL(31*day))
	fmt.Println("for longer, refused:", errors.Is(err, client.ErrRejected))

	l.Advance(30 * day)
	err = visitors.OnExpired(ctx, "visitors-proof", func(_ context.Context, e client.Expired[map[string]any]) error {
		fmt.Println("proof:", e.ID, "expired after", e.TTL, "with its data:", !e.Omitted)
		done() // a service goes on
		return nil
	}, client.Since(time.Time{}))
	check(err)

	// Output:
	// for longer, refused: true
	// proof: v1 expired after 720h0m0s with its data: false
}

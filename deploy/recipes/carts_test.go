package recipes_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

// Cart is the document type of an example.
type Cart struct {
	Mail  string   `json:"mail"`
	Items []string `json:"items"`
}

// Example_carts: a cart ends a day after its last change. An hour before, its owner gets a reminder; at the end the
// stock is free again.
func Example_carts() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()
	release := func(items []string) { fmt.Println("release", items) }
	mail := func(to, text string) { fmt.Println("mail to", to+":", text) }

	carts, err := client.Open[Cart](c, "carts")
	check(err)
	_, err = carts.Configure(ctx, client.Config{DefaultTTL: 24 * time.Hour, WarnBefore: []time.Duration{time.Hour}})
	check(err)
	_, err = carts.Upsert(ctx, "ada", Cart{Mail: "ada@example.com", Items: []string{"tea"}})
	check(err)

	l.Advance(23 * time.Hour)
	remind, reminded := context.WithCancel(ctx)
	err = carts.OnExpiring(remind, "carts-remind", func(_ context.Context, e client.Expiring[Cart]) error {
		mail(e.Value.Mail, fmt.Sprintf("your cart ends in %v", e.Before))
		reminded() // a service goes on
		return nil
	}, client.Since(time.Time{}))
	check(err)

	_, err = carts.Patch(ctx, "ada", map[string]any{"items": []string{"tea", "cup"}}) // a day from now
	check(err)
	l.Advance(24 * time.Hour)
	err = carts.OnExpired(ctx, "carts-release", func(_ context.Context, e client.Expired[Cart]) error {
		release(e.Value.Items)
		done() // a service goes on
		return nil
	}, client.Since(time.Time{}))
	check(err)

	// Output:
	// mail to ada@example.com: your cart ends in 1h0m0s
	// release [tea cup]
}

package recipes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

// Hold is the document type of an example.
type Hold struct {
	Customer string `json:"customer"`
	Note     string `json:"note,omitempty"`
}

// Example_holds: a seat is held until 18:00. Five minutes before, there is a reminder. Whoever may only patch and
// touch holds cannot prolong one: to let nobody else create or replace them, give customers the permission to publish
// to lapse.write.patch.holds.* alone.
func Example_holds() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()

	holds, err := client.Open[Hold](c, "holds")
	check(err)
	_, err = holds.Configure(ctx, client.Config{DefaultTTL: client.Never, WarnBefore: []time.Duration{5 * time.Minute}})
	check(err)
	at18 := l.Now().Add(6 * time.Hour)
	created, err := holds.Create(ctx, "A7", Hold{Customer: "c1"}, client.TTL(24*time.Hour), client.NotAfter(at18))
	check(err)

	edited, err := holds.Patch(ctx, "A7", json.RawMessage(`{"note":"aisle","ttl":172800}`))
	check(err)
	fmt.Println("an edit moves the deadline:", !edited.ExpiresAt.Equal(created.ExpiresAt))
	_, err = holds.Touch(ctx, "A7", client.ExpiresAt(at18.Add(time.Hour)))
	fmt.Println("another deadline is refused:", errors.Is(err, client.ErrRejected))

	l.Advance(5*time.Hour + 55*time.Minute)
	remind, reminded := context.WithCancel(ctx)
	err = holds.OnExpiring(remind, "holds-remind", func(_ context.Context, e client.Expiring[Hold]) error {
		fmt.Println("reminder:", e.ID, "ends in", e.Before)
		reminded() // a service goes on
		return nil
	}, client.Since(time.Time{}))
	check(err)

	l.Advance(5 * time.Minute)
	_, err = holds.Get(ctx, "A7")
	fmt.Println("at 18:00, not found:", errors.Is(err, client.ErrNotFound))

	// Output:
	// an edit moves the deadline: false
	// another deadline is refused: true
	// reminder: A7 ends in 5m0s
	// at 18:00, not found: true
}

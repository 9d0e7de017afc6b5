package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
)

// In a test, call Start instead of New: it ends the lapse with the test.
func Example() {
	l, err := clienttest.New()
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	ctx := context.Background()
	sessions, err := client.Open[map[string]any](l.Client(), "sessions")
	if err != nil {
		log.Panic(err)
	}
	if _, err := sessions.Configure(ctx, client.Config{DefaultTTL: 24 * time.Hour}); err != nil {
		log.Panic(err)
	}
	if _, err := sessions.Create(ctx, "s1", map[string]any{"user": "u1"}); err != nil {
		log.Panic(err)
	}

	l.Advance(23 * time.Hour)
	_, err = sessions.Get(ctx, "s1")
	fmt.Println("after 23 hours:", err)
	l.Expire("sessions", "s1")
	_, err = sessions.Get(ctx, "s1")
	fmt.Println("not found:", errors.Is(err, client.ErrNotFound))

	// Output:
	// after 23 hours: <nil>
	// not found: true
}

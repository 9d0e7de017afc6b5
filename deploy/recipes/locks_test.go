package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Example_locks: a lock is a document with a TTL. The etag with which it was taken is the fencing token: it only
// grows, so what the lock guards refuses a smaller one.
func Example_locks() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()

	locks, err := client.Open[struct{}](c, "locks")
	check(err)
	_, err = locks.Configure(ctx, client.Config{DefaultTTL: client.Never}) // once
	check(err)

	var greatest wire.Etag // beside what the lock guards
	stale := func(token wire.Etag) bool {
		if token < greatest {
			return true
		}
		greatest = token
		return false
	}
	write := func(_ context.Context, token wire.Etag, text string) error {
		if stale(token) {
			return errors.New("refused " + text)
		}
		fmt.Println("wrote", text)
		return nil
	}

	err = c.Lock(ctx, "locks", "report", client.LockOptions{TTL: 10 * time.Second},
		func(ctx context.Context, token wire.Etag) error {
			return write(ctx, token, "the report")
		})
	check(err)

	opts := client.LockOptions{TTL: time.Minute}
	err = c.Lock(ctx, "locks", "report", opts, func(ctx context.Context, one wire.Etag) error {
		l.Expire("locks", "report") // a process that was stopped for a minute
		err := c.Lock(ctx, "locks", "report", opts, func(ctx context.Context, two wire.Etag) error {
			return write(ctx, two, "another report")
		})
		check(err)
		return write(ctx, one, "a late report")
	})
	fmt.Println(err)

	// Output:
	// wrote the report
	// wrote another report
	// refused a late report
}

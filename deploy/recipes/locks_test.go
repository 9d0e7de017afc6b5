package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

// Lock is the document type of an example.
type Lock struct {
	Owner string `json:"owner"`
}

// A lock is a document with a TTL. Its etag is the fencing token: it only grows, so what the lock guards refuses a
// smaller one.
func Example_locks() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()

	locks, err := client.Open[Lock](c, "locks")
	check(err)
	_, err = locks.Configure(ctx, client.Config{DefaultTTL: client.Never})
	check(err)
	take := func(name, owner string) (client.Written, error) {
		return locks.Create(ctx, name, Lock{Owner: owner}, client.TTL(10*time.Second))
	}

	one, err := take("report", "one")
	check(err)
	_, err = take("report", "two")
	fmt.Println("somebody has it:", errors.Is(err, client.ErrExists))
	renewed, err := locks.Touch(ctx, "report", client.IfMatch(one.Etag)) // every few seconds
	check(err)

	l.Advance(10 * time.Second) // one has died
	two, err := take("report", "two")
	check(err)
	fmt.Println("the token has grown:", two.Etag > renewed.Etag)
	_, err = locks.Touch(ctx, "report", client.IfMatch(renewed.Etag))
	fmt.Println("one has lost it:", errors.Is(err, client.ErrPrecondition))
	_, err = locks.Delete(ctx, "report", client.IfMatch(two.Etag)) // done
	check(err)

	// Output:
	// somebody has it: true
	// the token has grown: true
	// one has lost it: true
}

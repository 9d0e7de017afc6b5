package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/seed18712806/lapse/deploy/recipes"
	"github.com/seed18712806/lapse/sink/client"
)

// Session is the document type of an example.
type Session struct {
	User string `json:"user"`
}

// Example_sessions: a session ends after 30 minutes in which nobody reads it, and after 12 hours whatever is done.
func Example_sessions() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()

	sessions, err := client.Open[Session](c, "sessions")
	check(err)
	_, err = sessions.Configure(ctx, client.Config{ // once
		DefaultTTL: 30 * time.Minute, MaxLife: 12 * time.Hour, SlideOnRead: true, SlideAfter: 0.01,
	})
	check(err)
	logIn := func(id, user string) error {
		_, err := sessions.Create(ctx, id, Session{User: user})
		return err
	}
	check(logIn("used", "ada"))
	check(logIn("idle", "bo"))

	for range 51 { // somebody reads it every 14 minutes
		l.Advance(14 * time.Minute)
		read, err := sessions.GetRenewed(ctx, "used")
		check(err)
		_, err = sessions.Replace(ctx, "used", read.Value, client.IfMatch(read.Etag)) // as session stores do
		check(err)
	}
	_, err = sessions.Get(ctx, "idle")
	fmt.Println("idle, not found:", errors.Is(err, client.ErrNotFound))
	l.Advance(6 * time.Minute)
	_, err = sessions.Get(ctx, "used")
	fmt.Println("after 12 hours, not found:", errors.Is(err, client.ErrNotFound))

	// Output:
	// idle, not found: true
	// after 12 hours, not found: true
}

// Example_scs: the sessions of scs are documents.
func Example_scs() {
	l, c := startLapse()
	defer l.Close()

	sessions, err := client.Open[recipes.SCSSession](c, "sessions")
	check(err)
	_, err = sessions.Configure(context.Background(), client.Config{DefaultTTL: client.Never}) // once
	check(err)
	manager := scs.New()
	manager.Store, manager.Lifetime = recipes.NewSCSStore(sessions), 12*time.Hour
	ctx, err := manager.Load(context.Background(), "")
	check(err)
	manager.Put(ctx, "user", "ada")
	token, _, err := manager.Commit(ctx)
	check(err)
	ctx, err = manager.Load(context.Background(), token)
	check(err)
	fmt.Println(manager.GetString(ctx, "user"))

	// Output:
	// ada
}
